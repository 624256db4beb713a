"""The table of docs/claims.md: what three papers claim (_claims_list.py), and what our studies say of each claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

from _intervals import of_first_place

Results = Callable[[str], dict[str, Any]]
Table = Callable[[list[str], list[list[str]]], str]
Row = dict[str, Any]

SEEDS_ENOUGH = 3
ONE_RUN = 1.0  # points that a single run may be off by chance
SETS = ["pydocs", "manpages", "debian-related", "wordnet-related", "eurlex57k-titles"]
NOT_YET, NOT_HERE = "not measured yet", "cannot be measured here"


@dataclass(frozen=True)
class Evidence:
    """One comparison on one data set; ``better`` should be the larger one if the claim holds."""

    data: str
    better: tuple[float, ...]  # one value a seed
    worse: tuple[float, ...]
    note: str = ""  # what is particular about these rows
    span: tuple[float, float] | None = None  # 95% of a paired bootstrap of the difference over test texts

    @property
    def seeds(self) -> int:
        """Return how many seeds both sides have."""
        return min(len(self.better), len(self.worse))

    def verdict(self) -> int:
        """Return 1 if the claim holds, -1 if the opposite does, 0 if chance may explain the difference.

        With three seeds or more a difference counts from two standard errors, with fewer from one point, and if the
        bootstrap over test texts, where there is one, agrees on its sign.
        """
        difference = fmean(self.better) - fmean(self.worse)
        noise = ONE_RUN
        if self.seeds >= SEEDS_ENOUGH:
            noise = 2 * sum(variance(side) / len(side) for side in (self.better, self.worse)) ** 0.5
        elif self.span is not None and self.span[0] <= 0 <= self.span[1]:
            return 0
        return 0 if abs(difference) <= noise else 1 if difference > 0 else -1

    def text(self) -> str:
        """Return both figures and the number of seeds."""
        seeds = f"{self.seeds} seeds" if self.seeds > 1 else "1 seed"
        note = f", {self.note}" if self.note else ""
        return f"{self.data}: {fmean(self.better):.1f} / {fmean(self.worse):.1f} ({seeds}{note})"


@dataclass(frozen=True)
class Side:
    """A row of a study, by name, and the head that ranks."""

    name: str
    head: str = "all"


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, as a comparison of two rows of a study, or of what ``measure`` finds in one.

    A claim without a study cannot be measured here; ``why`` says what is missing.
    """

    text: str
    published: str  # what the paper has for the two sides, and where
    study: str  # results/<study>.json
    better: Side
    worse: Side
    metric: str
    link: str
    at_least: bool = False  # the claim says "no worse than"
    measure: Callable[[dict[str, Any]], list[Evidence]] | None = None
    why: str = ""


def claims_text(claims: dict[str, list[Claim]], table: Table, results: Results) -> str:
    """Return one table for each paper, and how many claims hold."""
    parts = []
    counts: dict[str, int] = {}
    for paper, own in claims.items():
        lines = []
        for claim in own:
            found = [] if claim.why else found_in(claim, results)
            verdict = f"{NOT_HERE}: {claim.why}" if claim.why else judge(claim, found)
            counts[verdict.split(":")[0]] = counts.get(verdict.split(":")[0], 0) + 1
            ours = "<br>".join(each.text() for each in found) or "-"
            lines.append([claim.text, claim.metric or "-", claim.published, ours, verdict, claim.link or "-"])
        head = ["claim", "figure", "paper", "ours", "verdict", "study"]
        parts.append(f"**{paper}**\n\n{table(head, lines)}")
    total = sum(counts.values())
    summary = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{total} claims: {summary}.\n\n" + "\n".join(parts)


def found_in(claim: Claim, results: Results) -> list[Evidence]:
    """Return the evidence of a claim; none if its study was not run."""
    try:
        stored = results(claim.study)
    except FileNotFoundError:
        return []
    return evidence(claim, stored["rows"]) if claim.measure is None else claim.measure(stored)


def evidence(claim: Claim, rows: Sequence[Row]) -> list[Evidence]:
    """Return the comparisons of a claim, one for each data set on which both sides were run with the same seed.

    Both sides are of one set-up and of its last settings; rows with a budget of time count before those of an earlier
    set-up.
    """
    found: list[Evidence] = []
    several = any("cpu_minutes" in row for row in rows)
    for data in sorted({row["data"] for row in rows}, key=lambda name: (*SETS, name).index(name)):
        for group, about in set_ups([row for row in rows if row["data"] == data]):
            ours, theirs = (_by_seed(group, side, claim.metric) for side in (claim.better, claim.worse))
            if seeds := sorted(ours.keys() & theirs.keys()):
                sides = (tuple(side[seed] for seed in seeds) for side in (ours, theirs))
                span = _span(group, claim, seeds)
                found.append(Evidence(data, *sides, about if several else "", span))
                break
    return found


def set_ups(rows: Sequence[Row]) -> Iterator[tuple[list[Row], str]]:
    """Yield the rows of one budget of time after the other, the largest first, and what is to be said of them.

    Where some rows of a study have a budget, those without are of its earlier set-up.
    """
    budgets = sorted({row.get("cpu_minutes", 0.0) for row in rows}, reverse=True)
    for budget in budgets:
        yield [row for row in rows if row.get("cpu_minutes", 0.0) == budget], "" if budget else "earlier set-up"


def _latest(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows of a name, of the last settings it had."""
    named = [row for row in rows if row["name"] == name]
    return [row for row in named if row.get("digest") == named[-1].get("digest")]


def _by_seed(rows: Sequence[Row], side: Side, metric: str) -> dict[int, float]:
    """Return the figure of each seed."""
    values = ((row["seed"], _value(row, side.head, metric)) for row in _latest(rows, side.name))
    return {seed: value for seed, value in values if value is not None}


def _span(rows: Sequence[Row], claim: Claim, seeds: Sequence[int]) -> tuple[float, float] | None:
    """Return the interval of the difference, where the hits of every test text were kept."""
    sides = [
        [row for row in _latest(rows, side.name) if row["seed"] in seeds and "hits" in row]
        for side in (claim.better, claim.worse)
    ]
    kept = all(len(side) == len(seeds) for side in sides) and {claim.better.head, claim.worse.head} == {"all"}
    return of_first_place(*sides) if kept and claim.metric == "P@1" else None


def _value(row: Row, head: str, metric: str) -> float | None:
    if metric.startswith("complete@"):
        return float(row["complete"][metric.removeprefix("complete@")]["several"]["complete"])
    if metric == "million parameters":
        return float(row["parameters"]) / 1e6
    found: float | None = row["metrics"].get(head, {}).get(metric)
    return found


def judge(claim: Claim, found: Sequence[Evidence]) -> str:
    """Return the verdict on a claim: on which sets it holds."""
    by_verdict = {verdict: [each.data for each in found if each.verdict() == verdict] for verdict in (1, 0, -1)}
    good, level, bad = by_verdict[1], by_verdict[0], by_verdict[-1]
    if claim.at_least:
        good, level = [*good, *level], []
    if not found:
        return NOT_YET
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
