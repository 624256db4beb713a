"""The claims of the three papers, each with what it is compared on; _claims.py judges them."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from _claims import Claim, Evidence, Side

DEXML = "Gupta et al., ICLR 2024 (arXiv 2310.10636)"
GANDALF = "Kharbanda et al., 2024 (arXiv 2405.04545, thesis version)"
UNIDEC = "Kharbanda et al., 2024 (arXiv 2405.03714, thesis version)"
EURLEX, AMAZON, SMALL = "EURLex-4K", "LF-AmazonTitles-1.3M", "LF-AmazonTitles-131K"
WIKI = "LF-WikiTitles-500K"

LOSSES = "[losses](results.md#losses)"
NEGATIVES = "[negatives](results.md#negatives)"
SYMMETRIC = "[symmetric losses](results.md#symmetric-losses)"
HEADS = "[heads and hard negatives](results.md#heads-and-hard-negatives)"
PAIRS = "[pairs of losses](results.md#pairs-of-losses)"
COSTS = "[costs](results.md#costs)"
POSITIVES = "[positives in the pool](results.md#positives-in-the-pool)"
STUDY = "[Gandalf](gandalf.md#results)"
SYSTEMS = "[systems](systems.md#measured-with-one-budget)"
RAG = "[retrieval](integrations.md#a-retriever-for-questions-with-several-documents)"
FIGURES = "[figures](figures.md)"
MEMORY = "[training](training.md)"
NEW_LABELS = "[zero-shot](zero-shot.md)"
NOBODY = Side("")
DS = "decoupled softmax"


def _of_losses(text: str, published: str, better: str, worse: str, metric: str) -> Claim:
    sides = Side(f"DEXML, {better}"), Side(f"DEXML, {worse}")
    return Claim(text, f"{published} ({EURLEX})", "ablations", *sides, metric, LOSSES)


def _of_systems(text: str, published: str, better: Side | str, worse: Side | str, metric: str = "P@1") -> Claim:
    sides = [Side(side) if isinstance(side, str) else side for side in (better, worse)]
    return Claim(text, published, "systems", sides[0], sides[1], metric, SYSTEMS)


def _of_gandalf(text: str, published: str, better: str, worse: str, metric: str, **more: Any) -> Claim:
    names = [name if ":" in name else f"InceptionXML: {name}" for name in (better, worse)]
    return Claim(text, f"{published} ({SMALL})", "gandalf", Side(names[0]), Side(names[1]), metric, STUDY, **more)


def _of_base(system: str, published: str, metric: str = "P@1", words: str = "improves", **more: Any) -> Claim:
    what = "" if metric == "P@1" else " on rare labels"
    sides = f"{system}: Z u D", f"{system}: D"
    return _of_gandalf(f"It {words} {system}{what}", published, *sides, metric, **more)


def _of_parts(text: str, published: str, better: Side | str, worse: Side | str, metric: str, link: str) -> Claim:
    sides = [Side(side) if isinstance(side, str) else side for side in (better, worse)]
    return Claim(text, f"{published} ({AMAZON})", "ablations", sides[0], sides[1], metric, link)


def _of_questions(text: str, better: str, worse: str, k: int) -> Claim:
    return Claim(text, "not available to us", "rag", Side(better), Side(worse), f"complete@{k}", RAG)


def _elsewhere(text: str, published: str, why: str) -> Claim:
    return Claim(text, published, "", NOBODY, NOBODY, "", "", why=why)


def _measured(text: str, published: str, study: str, metric: str, link: str, measure: Any) -> Claim:
    return Claim(text, published, study, NOBODY, NOBODY, metric, link, measure=measure)


def easy_one(stored: dict[str, Any]) -> list[Evidence]:
    """Return how often the easy positive is first at the end of training: decoupled softmax / softmax."""
    return [
        Evidence(f"made up, {scores.replace('_', ' ')}", *((curves[loss][-1]["easy_first"],) for loss in BOTH))
        for scores, curves in stored["curves"].items()
    ]


def spread_of_gradients(stored: dict[str, Any]) -> list[Evidence]:
    """Return 100 times the deviation of a positive's gradient, a mean over training: softmax / decoupled softmax."""
    return [
        Evidence(
            f"{stored['data']}, {about}",
            *((100 * fmean(point[f"{kind}_deviation"] for point in stored["curves"][loss]),) for loss in BOTH[::-1]),
        )
        for kind, about in (("label", "one label"), ("example", "one point"))
    ]


def learnt_by_heart(stored: dict[str, Any]) -> list[Evidence]:
    """Return recall@1 on random pairs, the largest number of them, beside the 95% asked for."""
    last = max(stored["rows"], key=lambda row: row["pairs"])
    return [Evidence(f"{last['pairs']:,} pairs", (last["recall@1"],), (95.0,), "asked for 95%")]


def learnt_a_million(stored: dict[str, Any]) -> list[Evidence]:
    """Return the same for a million pairs."""
    rows = [row for row in stored["rows"] if row["pairs"] >= MILLION]
    return learnt_by_heart({"rows": rows}) if rows else []


def added_by_text(stored: dict[str, Any]) -> list[Evidence]:
    """Return R@10 of labels that a dual encoder never trained on, beside what chance would give them."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in stored["rows"]:
        if row["recipe"] == "dexml-cpu" and row["way"] == "added":
            found.setdefault(row["data"], []).append((row["metrics"]["all"]["R@10"], 1000 / row["labels"]))
    return [Evidence(data, *zip(*pairs, strict=True), "chance") for data, pairs in found.items()]


MILLION = 1_000_000
BOTH = ("decoupled_softmax", "softmax")
WITH, WITHOUT = "UniDEC, DS / DS", "UniDEC, no hard negatives, filled"
NO_NEGATIVES = "UniDEC, no hard negatives"
PLAIN_BCE = "UniDEC, DS / BCE, unnormalised"
CLAIMS: dict[str, list[Claim]] = {
    f"DEXML: {DEXML}": [
        _of_losses("BCE over all labels trains no dual encoder: decoupled softmax is far ahead",
                   "86.78 / 0.10", DS, "BCE", "P@1"),
        _of_losses("Decoupled softmax ranks the first label better than softmax", "86.78 / 80.05", DS, "softmax",
                   "P@1"),
        _of_losses("... and the first five", "60.19 / 58.36", DS, "softmax", "P@5"),
        _of_losses("... and loses a little among the first hundred", "92.57 / 91.75", "softmax", DS, "R@100"),
        _of_losses("SoftTop-5 has the best P@5", "60.95 / 60.19", "SoftTop-5", DS, "P@5"),
        _of_losses("... and gives up P@1 for it", "86.78 / 83.42", DS, "SoftTop-5", "P@1"),
        _of_losses("SoftTop-100 has the best R@100", "93.72 / 92.57", "SoftTop-100", "softmax", "R@100"),
        _of_losses("... and gives up P@1 for it", "86.78 / 52.34", DS, "SoftTop-100", "P@1"),
        Claim("Ten hard negatives improve on in-batch ones", f"54.01 / 42.15 ({AMAZON})", "ablations",
              Side("DEXML, in batch + 10 hard"), Side("DEXML, in batch"), "P@1", NEGATIVES),
        Claim("All labels improve on ten hard negatives", f"58.40 / 54.01 ({AMAZON})", "ablations",
              Side(f"DEXML, {DS}"), Side("DEXML, in batch + 10 hard"), "P@1", NEGATIVES),
        _of_systems("A dual encoder without parameters of labels beats NGAME",
                    f"58.40 / 56.75 ({AMAZON}), 42.52 / 46.01 ({SMALL})", "DEXML", "NGAME"),
        _of_systems("... with fewer parameters", "1,000 / 66 million", "NGAME", "DEXML",
                    "million parameters"),
        _of_systems("It beats XR-Transformer", f"58.40 / 50.14 ({AMAZON})", "DEXML", "XR-Transformer"),
        _of_systems("It beats ELIAS", f"58.40 / 49.26 ({AMAZON})", "DEXML", "ELIAS"),
        _of_systems("It beats DEXA", f"58.40 / 56.63 ({AMAZON})", "DEXML", "DEXA"),
        _measured("Softmax gives up a positive that is easy, decoupled softmax keeps it", "Figure 2, no numbers",
                  "easy_positive", "easy one first", FIGURES, easy_one),
        _measured("Gradients of a real positive spread less under decoupled softmax", "Figure 3, no numbers",
                  "positive_gradients", "100 x deviation", FIGURES, spread_of_gradients),
        _measured("A dual encoder can learn random pairs by heart", "a million pairs, no numbers", "memorisation",
                  "R@1", MEMORY, learnt_by_heart),
        _measured("... a million of them", "a million pairs, no numbers", "memorisation", "R@1", MEMORY,
                  learnt_a_million),
        _measured("A dual encoder finds labels it was never trained on", "not available to us", "zero_shot", "R@10",
                  NEW_LABELS, added_by_text),
        _of_questions("Questions with several documents: decoupled softmax finds all of them in the first 10 more "
                      "often than InfoNCE with one positive", "DS", "InfoNCE, one positive", 10),
        *(_of_questions(f"SoftTop-{k} is the loss to take if the cut is at {k}: ahead of decoupled softmax",
                        f"SoftTop-{k}", "DS", k) for k in (5, 10, 20, 100)),
        _elsewhere("It holds on open-domain questions (NQ) with a corpus of passages", "not available to us",
                   "the corpus of 21 million passages is not here"),
    ],
    f"Gandalf: {GANDALF}": [
        _of_gandalf("Label texts as rows improve P@1", "43.52 / 35.62", "Z u D", "D", "P@1"),
        _of_gandalf("They improve rare labels", "36.96 / 27.53", "Z u D", "D", "PSP@1"),
        _of_gandalf("... also if D has as many steps", "better from the first epochs on, a figure without numbers",
                    "Z u D", "D, twice the epochs", "P@1"),
        _of_gandalf("More labels are found at all", "58.03 / 46.29", "Z u D", "D", "coverage@5"),
        _of_gandalf("Label texts alone, without a query, beat D on rare labels", "28.76 / 27.53", "Z", "D", "PSP@1"),
        _of_gandalf("They help at the same number of rows", "38.46 / 35.62", "U(G, N)", "D", "P@1"),
        _of_gandalf("Self-annotation alone improves P@1", "37.59 / 35.62", "Z1 u D", "D", "P@1"),
        _of_gandalf("Targets from co-occurrence are better than self-annotation",
                    "43.52 / 37.59", "Z u D", "Z1 u D", "P@1"),
        _of_gandalf("... also on rare labels", "36.96 / 30.75", "Z u D", "Z1 u D", "PSP@1"),
        _of_gandalf("Gandalf is better than MixUp", "43.52 / 35.63", "Z u D", "MixUp", "P@1"),
        _of_gandalf("... than Label-MixUp", "43.52 / 37.25", "Z u D", "Label-MixUp", "P@1"),
        _of_gandalf("... than synonyms", "43.52 / 35.07", "Z u D", "synonyms", "P@1"),
        _of_gandalf("Targets of GLaS are no better", "43.52 / 42.80", "Z u D", "Z u D, GLaS", "P@1", at_least=True),
        _of_gandalf("Plain counts are as good as random walks", "43.71 / 43.52", "Z u D", "walk", "P@1",
                    at_least=True),
        _of_gandalf("A threshold of 0.1 is no worse than none", "42.09 / 41.71",
                    "InceptionXML-LF: Z u D", "InceptionXML-LF: delta 0", "P@1", at_least=True),
        _of_gandalf("... nor than 0.2", "42.09 / 41.73",
                    "InceptionXML-LF: Z u D", "InceptionXML-LF: delta 0.2", "P@1", at_least=True),
        _of_gandalf("All label texts beat a quarter of them", "a figure without numbers", "Z u D",
                    "25% of labels, uniform", "P@1"),
        _of_gandalf("With half of the labels, rare ones first beat a uniform choice", "a figure without numbers",
                    "50% of labels, tail", "50% of labels, uniform", "PSP@5"),
        *(_of_base(system, figures) for system, figures in (
            ("Astec", "43.95 / 37.12"), ("DECAF", "42.43 / 38.40"), ("ECLARE", "42.51 / 40.46"),
            ("InceptionXML-LF", "43.84 / 40.74"))),
        _of_base("NGAME + Renee", "40.49 / 38.47", "PSP@1"),
        _of_base("NGAME + Renee", "45.86 / 46.05", words="costs no P@1 of", at_least=True),
        _of_gandalf("InceptionXML with label texts as rows passes ECLARE, which reads label texts and a graph",
                    "44.67 / 40.46", "InceptionXML: Z u D", "ECLARE: D", "P@1"),
    ],
    f"UniDEC, DePSL: {UNIDEC}": [
        _of_parts("Both heads together beat the dual encoder alone", "57.41 / 52.51", WITH, Side(WITH, "dual"),
                  "P@1", HEADS),
        _of_parts("Both heads together beat the classifier alone", "57.41 / 55.56", WITH, Side(WITH, "classifier"),
                  "P@1", HEADS),
        _of_parts("Hard negatives improve P@1 of both heads together, beside a pool filled with positives",
                  "57.41 / 56.51", WITH, WITHOUT, "P@1", HEADS),
        _of_parts("... and cost PSP@1", "31.90 / 30.10", WITHOUT, WITH, "PSP@1", HEADS),
        _of_parts("... improve P@1 of the dual encoder alone", "52.51 / 49.71", Side(WITH, "dual"),
                  Side(WITHOUT, "dual"), "P@1", HEADS),
        _of_parts("... improve P@1 of the classifier alone", "55.56 / 53.31", Side(WITH, "classifier"),
                  Side(WITHOUT, "classifier"), "P@1", HEADS),
        _of_parts("Decoupled softmax beats SupCon in DePSL", "54.20 / 52.22", "DePSL, beta 3, eta 3", "DePSL, SupCon",
                  "P@1", SYMMETRIC),
        _of_parts("... and for both heads of UniDEC", "56.73 / 53.41", WITH, "UniDEC, SupCon / SupCon", "P@1", PAIRS),
        _of_parts("A symmetric loss raises PSP@5", "37.88 / 36.25", "DePSL, DS + sym", "DePSL, beta 3, eta 3",
                  "PSP@5", SYMMETRIC),
        _of_parts("... and costs P@1 on short texts", "54.20 / 53.26", "DePSL, beta 3, eta 3", "DePSL, DS + sym",
                  "P@1", SYMMETRIC),
        _of_parts("BCE trains the better classifier, if that is searched alone", "54.69 / 43.67",
                  Side(PLAIN_BCE, "classifier"), Side(WITH, "classifier"), "P@1", PAIRS),
        _of_parts("... but both heads together rank the first label better without it", "56.73 / 55.12", WITH,
                  PLAIN_BCE, "P@1", PAIRS),
        _of_parts("An auxiliary BCE raises P@1", "57.41 / 56.73", "UniDEC, DS / DS + BCE", WITH, "P@1", PAIRS),
        _of_parts("An auxiliary BCE costs PSP@1", "34.03 / 30.10", WITH, "UniDEC, DS / DS + BCE", "PSP@1", PAIRS),
        _of_parts("A picked pool beats in-batch and hard negatives of random batches", "54.20 / 54.01",
                  "DePSL, beta 3, eta 3", "DEXML, in batch + 10 hard", "P@1", COSTS),
        _of_parts("All labels in the loss are ahead of a picked pool", "58.40 / 54.20", f"DEXML, {DS}",
                  "DePSL, beta 3, eta 3", "P@1", COSTS),
        _of_parts("With a classifier it comes close to all labels in the loss (half a point on P@5 ahead)",
                  "45.89 / 45.46", WITH, f"DEXML, {DS}", "P@5", COSTS),
        _of_systems("UniDEC beats the two stages of NGAME",
                    f"57.41 / 56.75 ({AMAZON}), 44.35 / 46.01 ({SMALL})", "UniDEC", "NGAME"),
        _of_systems("UniDEC beats SiameseXML", f"57.41 / 49.02 ({AMAZON})", "UniDEC", "SiameseXML"),
        _of_systems("UniDEC beats Renee, which has all labels in the loss", f"57.41 / 56.04 ({AMAZON}), 47.80 / 48.05 "
                    "(LF-Amazon-131K)", "UniDEC", "Renee"),
        _of_systems("UniDEC beats CascadeXML", f"50.22 / 47.29 ({WIKI})", "UniDEC", "CascadeXML"),
        _of_systems("DePSL beats the dual encoder of NGAME", f"54.20 / 45.82 ({AMAZON}), 42.34 / 42.61 ({SMALL})",
                    "DePSL", Side("NGAME", "dual")),
        _of_systems("DePSL beats ANCE", f"54.20 / 46.44 ({AMAZON}), 42.34 / 42.67 ({SMALL})", "DePSL", "ANCE"),
        _of_systems("DePSL beats DPR", f"54.20 / 44.64 ({AMAZON}), 42.34 / 41.85 ({SMALL})", "DePSL", "DPR"),
        _of_systems("DePSL beats GraphSAGE", f"49.66 / 27.30 ({WIKI})", "DePSL", "GraphSAGE"),
        _of_systems("DePSL beats SimCSE", "87.33 / 86.08 (Query2Bid-450M)", "DePSL", "SimCSE"),
        _elsewhere("DePSL leads on query-to-bid matching with 450 million labels", "87.33 / 86.16, NGAME",
                   "the data is private"),
        _elsewhere("In a live test, DePSL raises clicks and coverage", "+0.66% clicks, +1.11% coverage",
                   "it needs a search engine's users"),
    ],
}  # fmt: skip
