"""The table of docs/claims.md: what three papers claim, and what our studies say of each claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

Results = Callable[[str], dict[str, Any]]
Table = Callable[[list[str], list[list[str]]], str]

SEEDS_ENOUGH = 3
ONE_RUN = 1.0  # points that a single run may be off by chance
SETS = ["pydocs", "manpages", "debian-related", "wordnet-related", "eurlex57k-titles"]


@dataclass(frozen=True)
class Evidence:
    """One comparison on one data set; ``better`` should be the larger one if the claim holds."""

    data: str
    better: tuple[float, ...]  # one value a seed
    worse: tuple[float, ...]

    @property
    def seeds(self) -> int:
        """Return how many seeds both sides have."""
        return min(len(self.better), len(self.worse))

    def verdict(self) -> int:
        """Return 1 if the claim holds, -1 if the opposite does, 0 if chance may explain the difference.

        With three seeds or more a difference counts from two standard errors, with fewer from one point.
        """
        difference = fmean(self.better) - fmean(self.worse)
        noise = ONE_RUN
        if self.seeds >= SEEDS_ENOUGH:
            noise = 2 * sum(variance(side) / len(side) for side in (self.better, self.worse)) ** 0.5
        return 0 if abs(difference) <= noise else 1 if difference > 0 else -1

    def text(self) -> str:
        """Return both figures and the number of seeds."""
        seeds = f"{self.seeds} seeds" if self.seeds > 1 else "1 seed"
        return f"{self.data}: {fmean(self.better):.1f} / {fmean(self.worse):.1f} ({seeds})"


@dataclass(frozen=True)
class Side:
    """A row of a study, by name, and the head that ranks."""

    name: str
    head: str = "all"


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, as a comparison of two rows of a study."""

    text: str
    published: str  # what the paper has for the two sides, and where
    study: str  # results/<study>.json
    better: Side
    worse: Side
    metric: str
    link: str
    at_least: bool = False  # the claim says "no worse than"


DEXML = "Gupta et al., ICLR 2024 (arXiv 2310.10636)"
GANDALF = "Kharbanda et al., 2024 (arXiv 2405.04545, thesis version)"
UNIDEC = "Kharbanda et al., 2024 (arXiv 2405.03714, thesis version)"
EURLEX, AMAZON, SMALL = "EURLex-4K", "LF-AmazonTitles-1.3M", "LF-AmazonTitles-131K"

LOSSES = "[losses](results.md#losses)"
NEGATIVES = "[negatives](results.md#negatives)"
SYMMETRIC = "[symmetric losses](results.md#symmetric-losses)"
HEADS = "[heads and hard negatives](results.md#heads-and-hard-negatives)"
PAIRS = "[pairs of losses](results.md#pairs-of-losses)"
COSTS = "[costs](results.md#costs)"
STUDY = "[Gandalf](gandalf.md#results)"
SYSTEMS = "[systems](systems.md#measured-with-one-budget)"
RAG = "[retrieval](integrations.md#a-retriever-for-questions-with-several-documents)"


def _of_losses(text: str, published: str, better: str, worse: str, metric: str) -> Claim:
    return Claim(
        text, f"{published} ({EURLEX})", "ablations", Side(f"DEXML, {better}"), Side(f"DEXML, {worse}"), metric, LOSSES
    )


def _of_gandalf(text: str, published: str, better: str, worse: str, metric: str, **more: Any) -> Claim:
    names = [name if ":" in name else f"InceptionXML: {name}" for name in (better, worse)]
    return Claim(text, f"{published} ({SMALL})", "gandalf", Side(names[0]), Side(names[1]), metric, STUDY, **more)


def _of_parts(text: str, published: str, better: Side | str, worse: Side | str, metric: str, link: str) -> Claim:
    sides = [Side(side) if isinstance(side, str) else side for side in (better, worse)]
    return Claim(text, f"{published} ({AMAZON})", "ablations", sides[0], sides[1], metric, link)


WITH, WITHOUT = "UniDEC, DS / DS", "UniDEC, no hard negatives"
CLAIMS: dict[str, list[Claim]] = {
    f"DEXML: {DEXML}": [
        _of_losses("BCE over all labels trains no dual encoder: decoupled softmax is far ahead",
                   "86.78 / 0.10", "decoupled softmax", "BCE", "P@1"),
        _of_losses("Decoupled softmax ranks the first label better than softmax",
                   "86.78 / 80.05", "decoupled softmax", "softmax", "P@1"),
        _of_losses("SoftTop-5 has the best P@5", "60.95 / 60.19", "SoftTop-5", "decoupled softmax", "P@5"),
        _of_losses("SoftTop-100 has the best R@100", "93.72 / 92.57", "SoftTop-100", "softmax", "R@100"),
        Claim("Ten hard negatives improve on in-batch ones", f"54.01 / 42.15 ({AMAZON})", "ablations",
              Side("DEXML, in batch + 10 hard"), Side("DEXML, in batch"), "P@1", NEGATIVES),
        Claim("All labels improve on ten hard negatives", f"58.40 / 54.01 ({AMAZON})", "ablations",
              Side("DEXML, decoupled softmax"), Side("DEXML, in batch + 10 hard"), "P@1", NEGATIVES),
        Claim("A dual encoder without parameters of labels beats NGAME", f"58.40 / 56.75 ({AMAZON}), "
              f"42.52 / 46.01 ({SMALL})", "systems", Side("DEXML"), Side("NGAME"), "P@1", SYSTEMS),
        Claim("It beats XR-Transformer", f"58.40 / 50.14 ({AMAZON})", "systems",
              Side("DEXML"), Side("XR-Transformer"), "P@1", SYSTEMS),
        Claim("Questions with several documents: decoupled softmax finds all of them in the first 10 more often "
              "than InfoNCE with one positive", "not available to us", "rag",
              Side("DS"), Side("InfoNCE"), "complete@10", RAG),
    ],
    f"Gandalf: {GANDALF}": [
        _of_gandalf("Label texts as rows improve P@1", "43.52 / 35.62", "Z u D", "D", "P@1"),
        _of_gandalf("They improve rare labels", "36.96 / 27.53", "Z u D", "D", "PSP@1"),
        _of_gandalf("More labels are found at all", "58.03 / 46.29", "Z u D", "D", "coverage@5"),
        _of_gandalf("They help at the same number of rows", "38.46 / 35.62", "U(G, N)", "D", "P@1"),
        _of_gandalf("Targets from co-occurrence are better than self-annotation",
                    "43.52 / 37.59", "Z u D", "Z1 u D", "P@1"),
        _of_gandalf("Gandalf is better than MixUp", "43.52 / 35.63", "Z u D", "MixUp", "P@1"),
        _of_gandalf("... than Label-MixUp", "43.52 / 37.25", "Z u D", "Label-MixUp", "P@1"),
        _of_gandalf("... than synonyms", "43.52 / 35.07", "Z u D", "synonyms", "P@1"),
        _of_gandalf("Targets of GLaS are no better", "43.52 / 42.80", "Z u D", "Z u D, GLaS", "P@1", at_least=True),
        _of_gandalf("Plain counts are as good as random walks", "43.71 / 43.52", "Z u D", "walk", "P@1",
                    at_least=True),
        _of_gandalf("A threshold of 0.1 is no worse than none", "42.09 / 41.71, InceptionXML-LF",
                    "Z u D", "delta 0", "P@1", at_least=True),
        _of_gandalf("With half of the labels, rare ones first beat a uniform choice", "a figure without numbers",
                    "50% of labels, tail", "50% of labels, uniform", "PSP@5"),
        *(
            _of_gandalf(f"It improves {system}", figures, f"{system}: Z u D", f"{system}: D", "P@1")
            for system, figures in (("Astec", "43.95 / 37.12"), ("DECAF", "42.43 / 38.40"),
                                    ("ECLARE", "42.51 / 40.46"), ("InceptionXML-LF", "43.84 / 40.74"))
        ),
    ],
    f"UniDEC, DePSL: {UNIDEC}": [
        _of_parts("Both heads together beat the dual encoder alone", "57.41 / 52.51", WITH, Side(WITH, "dual"),
                  "P@1", HEADS),
        _of_parts("Both heads together beat the classifier alone", "57.41 / 55.56", WITH, Side(WITH, "classifier"),
                  "P@1", HEADS),
        _of_parts("Hard negatives improve P@1 of both heads together", "57.41 / 56.51", WITH, WITHOUT, "P@1", HEADS),
        _of_parts("Hard negatives cost PSP@1 of both heads together", "31.90 / 30.10", WITHOUT, WITH, "PSP@1", HEADS),
        _of_parts("Decoupled softmax beats SupCon in DePSL", "54.20 / 52.22", "DePSL, beta 3, eta 3", "DePSL, SupCon",
                  "P@1", SYMMETRIC),
        _of_parts("... and for both heads of UniDEC", "56.73 / 53.41", WITH, "UniDEC, SupCon / SupCon", "P@1", PAIRS),
        _of_parts("A symmetric loss raises PSP@5", "37.88 / 36.25", "DePSL, DS + sym", "DePSL, beta 3, eta 3",
                  "PSP@5", SYMMETRIC),
        _of_parts("An auxiliary BCE raises P@1", "57.41 / 56.73", "UniDEC, DS / DS + BCE", WITH, "P@1", PAIRS),
        _of_parts("An auxiliary BCE costs PSP@1", "34.03 / 30.10", WITH, "UniDEC, DS / DS + BCE", "PSP@1", PAIRS),
        _of_parts("A picked pool beats in-batch and hard negatives of random batches", "54.20 / 54.01",
                  "DePSL, beta 3, eta 3", "DEXML, in batch + 10 hard", "P@1", COSTS),
        _of_parts("With a classifier it comes close to all labels in the loss (half a point on P@5 ahead)",
                  "45.89 / 45.46", WITH, "DEXML, decoupled softmax", "P@5", COSTS),
        Claim("UniDEC beats the two stages of NGAME", f"57.41 / 56.75 ({AMAZON}), 44.35 / 46.01 ({SMALL})", "systems",
              Side("UniDEC"), Side("NGAME"), "P@1", SYSTEMS),
    ],
}  # fmt: skip


def claims_text(table: Table, results: Results) -> str:
    """Return one table for each paper, and how many claims hold."""
    parts = []
    counts: dict[str, int] = {}
    for paper, claims in CLAIMS.items():
        lines = []
        for claim in claims:
            found = evidence(claim, results(claim.study)["rows"])
            verdict = judge(claim, found)
            counts[verdict.split(":")[0]] = counts.get(verdict.split(":")[0], 0) + 1
            ours = "<br>".join(each.text() for each in found) or "-"
            lines.append([claim.text, claim.metric, claim.published, ours, verdict, claim.link])
        head = ["claim", "figure", "paper", "ours", "verdict", "study"]
        parts.append(f"**{paper}**\n\n{table(head, lines)}")
    total = sum(counts.values())
    summary = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{total} claims: {summary}.\n\n" + "\n".join(parts)


def evidence(claim: Claim, rows: Sequence[dict[str, Any]]) -> list[Evidence]:
    """Return the comparisons of a claim, one for each data set on which both sides were run with the same seed."""
    values: dict[tuple[Side, str], dict[int, float]] = {}
    for row in rows:
        for side in (claim.better, claim.worse):
            if row["name"] == side.name and (value := _value(row, side.head, claim.metric)) is not None:
                values.setdefault((side, row["data"]), {})[row["seed"]] = value
    found = []
    for data in sorted({row["data"] for row in rows}, key=lambda name: (*SETS, name).index(name)):
        better, worse = values.get((claim.better, data), {}), values.get((claim.worse, data), {})
        if seeds := sorted(better.keys() & worse.keys()):
            found.append(Evidence(data, tuple(better[s] for s in seeds), tuple(worse[s] for s in seeds)))
    return found


def _value(row: dict[str, Any], head: str, metric: str) -> float | None:
    if metric.startswith("complete@"):
        return float(row["complete"][metric.removeprefix("complete@")]["several"]["complete"])
    return row["metrics"].get(head, {}).get(metric)


def judge(claim: Claim, found: Sequence[Evidence]) -> str:
    """Return the verdict on a claim: on which sets it holds."""
    by_verdict = {verdict: [each.data for each in found if each.verdict() == verdict] for verdict in (1, 0, -1)}
    good, level, bad = by_verdict[1], by_verdict[0], by_verdict[-1]
    if claim.at_least:
        good, level = [*good, *level], []
    if not found:
        return "not measured yet"
    if len(good) == len(found):
        return "holds"
    if len(bad) == len(found):
        return f"does not hold: the opposite on {', '.join(bad)}"
    if not good and not bad:
        return f"not decided: level on {', '.join(level)}"
    if not good:
        return f"does not hold: the opposite on {', '.join(bad)}, level on {', '.join(level)}"
    others = [f"level on {', '.join(level)}"] * bool(level) + [f"not on {', '.join(bad)}"] * bool(bad)
    return f"holds in part: on {', '.join(good)}; {'; '.join(others)}"
