"""Gandalf: what label texts as training rows are worth (a study that can be stopped and goes on where it was).

Run: python benchmarks/gandalf.py --data pydocs DIR/manpages DIR/debian-related DIR/wordnet-related --minutes 600
     python benchmarks/gandalf.py --data ... --dry                      what is missing, and about how long it takes
Writes results/gandalf.json, a row after each run, and results/agreement.json. The rows follow the tables of the thesis
behind Kharbanda et al. (2024, arXiv 2405.04545): which data is used (1.2), systems (1.3), coverage (1.4), other
augmentations (1.6), graph and threshold (1.7), fewer labels (its figure on that). The plan below says which rows run on
which set with which seeds, the cheapest and most telling first; --seed and --only take some of them.

InceptionXML's free vectors start at the mean of their points, never at the label's text, so that D has seen no label
text at all. Every run has at most 20 minutes of training on one processor; one that is cut has fewer epochs than
planned, and its row says so. The epoch is selected on validation rows. Rows without ``cpu_minutes`` are of an earlier
set-up of three epochs, and no table mixes the two.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from _jobs import Job, missing, run_jobs
from _results import RESULTS, write_result
from _study import Row, arguments, run_job
from megalabel.errors import SettingError, nearest
from megalabel.recipes.load_recipe import load_recipe

CPU_MINUTES = 20.0
FEW_ROWS = "training.evaluate_on=2000"
MORE = {"cpu_minutes": CPU_MINUTES}
FROM_POINTS = "heads.classifier.init=points"
NGAME = Row("NGAME", "ngame-cpu", (FEW_ROWS,))


@dataclass(frozen=True)
class Base:
    """A system that label texts are added to."""

    recipe: str
    changes: tuple[str, ...] = ()
    after: Row | None = None


BASES = {
    "InceptionXML": Base("inceptionxml-cpu", (FROM_POINTS,)),
    "Astec": Base("astec-cpu"),
    "DECAF": Base("decaf-cpu"),
    "ECLARE": Base("eclare-cpu"),
    "InceptionXML-LF": Base("inceptionxml-lf-cpu"),
    "UniDEC": Base("unidec-cpu"),
    "NGAME + Renee": Base("renee-cpu", ("augment=none",), NGAME),
}
READS_TEXTS = ("DECAF", "ECLARE", "InceptionXML-LF")  # their labels have a text part, and D is best after few epochs
LONG = {"pydocs": 4, "manpages": 2, "debian-related": 2, "wordnet-related": 1}  # times the epochs of other recipes
SHARES = (0.25, 0.5, 0.75)


def label_rows(*settings: str, max_targets: str = "null", known: str = "ignore") -> str:
    """Return the change that switches Gandalf on with these settings; by default in the form of the paper.

    That is without a limit of targets, and with targets from the graph also for texts whose labels train knows.
    """
    given = ["kind: gandalf", f"known: {known}", f"max_targets: {max_targets}", *settings]
    return f"augment={{{', '.join(given)}}}"


PAPER = label_rows()
SELF = "augment={kind: gandalf, targets: self}"
FIVE = label_rows(known="merge", max_targets="5")


def row(system: str, name: str, times: float, *changes: str) -> Row:
    """Return a row of a system with so many times the epochs of its recipe, in every stage."""
    base = BASES[system]
    recipe = load_recipe(base.recipe, base.changes)
    lengths = []
    if times != 1:
        for stage, staged in recipe.stage_recipes():
            place = f"stages.{stage.name}." if recipe.stages else ""
            lengths.append(f"{place}training.epochs={round(times * staged.training.epochs)}")
    return Row(f"{system}: {name}", base.recipe, (*base.changes, FEW_ROWS, *lengths, *changes), base.after)


def times_of(system: str, data: str) -> int:
    """Return how many times the epochs of its recipe a system needs until D has converged."""
    return 1 if system in READS_TEXTS else LONG[data]


def both(system: str, data: str) -> list[Row]:
    """Return D and Z u D."""
    times = times_of(system, data)
    return [row(system, "D", times), row(system, "Z u D", times, PAPER)]


def lines(system: str, data: str) -> list[Row]:
    """Return the three lines that decide, and our default form of Gandalf."""
    times = times_of(system, data)
    return [
        *both(system, data),
        row(system, "Z1 u D", times, SELF),
        row(system, "Z u D, known merged, at most 5 targets", times, FIVE),
    ]


def twice(system: str, data: str) -> Row:
    """Return D with as many steps as Z u D has: there are about as many label texts as train rows on all these sets."""
    return row(system, "D, twice the epochs", 2 * times_of(system, data))


def which_data(times: float) -> list[Row]:
    """Return the rest of Table 1.2."""
    return [
        row("InceptionXML", "Z", times, label_rows("rows_kept: labels")),
        row("InceptionXML", "U(G, N)", times, label_rows("rows: train")),
        row("InceptionXML", "Z u D, GLaS", times, label_rows("targets: glas")),
    ]


def others(times: float) -> list[Row]:
    """Return the augmentations of Table 1.6."""
    kinds = {"MixUp": "mixup", "Label-MixUp": "label_mixup", "synonyms": "synonyms"}
    return [row("InceptionXML", name, times, f"augment={kind}") for name, kind in kinds.items()]


def graphs(times: float) -> list[Row]:
    """Return Table 1.7: the graph on InceptionXML, the threshold on InceptionXML-LF, whose Z u D has delta 0.1."""
    deltas = (0, 0.2)
    return [
        row("InceptionXML", "walk", times, label_rows("graph: walk")),
        *(row("InceptionXML-LF", f"delta {delta:g}", 1, label_rows(f"delta: {delta:g}")) for delta in deltas),
    ]


def ours(times: float) -> list[Row]:
    """Return forms of Gandalf that are ours: what a row may say, and how it is counted."""
    return [
        row("InceptionXML", name, times, change)
        for name, change in {
            "Z u D, known merged": label_rows(known="merge"),
            "Z u D, at most 5 targets": label_rows(max_targets="5"),
            "Z u D, known merged, else Z1": label_rows(known="merge", max_targets="1"),
            "calibrated, known merged": label_rows("targets: calibrated", known="merge"),
            "calibrated": label_rows("targets: calibrated"),
            "shared counts": label_rows("graph: shared_counts"),
            "shrunk counts": label_rows("graph: shrunk_counts"),
        }.items()
    ]


def fewer_labels(times: float) -> list[Row]:
    """Return Z u D with a share of the labels."""
    return [
        row(
            "InceptionXML",
            f"{share:.0%} of labels, {sample}",
            times,
            label_rows(f"share: {share}", f"sample: {sample}"),
        )
        for share in SHARES
        for sample in ("uniform", "tail")
    ]


def plan() -> list[tuple[str, tuple[int, ...], list[Row]]]:
    """Return which rows run on which set with which seeds, in order."""
    three, one = (0, 1, 2), (0,)
    small, pages, debian = (LONG[data] for data in ("pydocs", "manpages", "debian-related"))
    first, *rest = BASES
    return [
        ("pydocs", three, [line for system in READS_TEXTS for line in both(system, "pydocs")]),
        ("pydocs", three, [*lines(first, "pydocs"), twice(first, "pydocs")]),
        ("manpages", three, both(first, "manpages")),
        ("manpages", three, lines(first, "manpages")),
        ("manpages", one, [twice(first, "manpages")]),
        ("debian-related", one, [*lines(first, "debian-related"), twice(first, "debian-related")]),
        ("pydocs", three, which_data(small) + others(small) + graphs(small)),
        *(("pydocs", three, [*lines(system, "pydocs"), twice(system, "pydocs")]) for system in rest),
        ("pydocs", three, ours(small) + fewer_labels(small)),
        ("debian-related", one, [line for line in ours(debian) if "calibrated" in line.name]),
        ("manpages", one, which_data(pages) + ours(pages)),
        ("wordnet-related", one, lines(first, "wordnet-related")),
        *(("manpages", one, lines(system, "manpages")) for system in rest),
        ("manpages", one, others(pages) + [line for line in graphs(pages) if "walk" in line.name]),
    ]


def rows_of(data: str) -> list[Row]:
    """Return the rows of one data set."""
    found = [row for name, _, rows in plan() if name == data for row in rows]
    return list({row.name: row for row in found}.values())


def jobs_of(sources: Sequence[str], seeds: Sequence[int] | None, only: Sequence[str] | None) -> list[Job]:
    """Return the jobs of the plan on these data sets, folders or built-in names, in its order."""
    by_name = {Path(source).name: source for source in sources}
    parts = plan()
    names = [row.name for _, _, rows in parts for row in rows]
    for kind, wanted, known in (("data set", by_name, LONG), ("row", only or (), names)):
        for name in wanted:
            if name not in known:
                raise SettingError(f"the plan has no {kind} {name!r}", remedy=nearest(name, known))
    return [
        Job(by_name[data], seed, line)
        for data, planned, rows in parts
        if data in by_name
        for seed in planned
        if seeds is None or seed in seeds
        for line in rows
        if not only or line.name in only
    ]


def write_agreement(sources: Sequence[str]) -> None:
    """Add to results/agreement.json how many of Gandalf's targets train confirms, for sets that are not in it."""
    import megalabel as ml
    from megalabel.augment import agreement, gandalf

    path = RESULTS / "agreement.json"
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    left = [source for source in sources if Path(source).name not in {row["data"] for row in rows}]
    for source in left:
        data, name = ml.load(source), Path(source).name
        confirmed = agreement(data, gandalf(data, known="ignore", max_targets=None))
        rows.append({"data": name, "texts": confirmed.texts, "targets": confirmed.targets, "right": confirmed.right})
        print(f"{name}: {confirmed.texts:,} label texts are train texts, {confirmed.share:.1%} of targets are right")
    if left:
        write_result("agreement", {"rows": rows})


def main() -> int:
    """Run what is missing of the plan."""
    options: argparse.Namespace = arguments(__doc__.splitlines()[0], seeds=None)
    path = RESULTS / "gandalf.json"
    try:
        left = missing(path, jobs_of(options.data, options.seed, options.only), MORE)
    except SettingError as error:
        raise SystemExit(str(error)) from None
    if not options.dry:
        write_agreement(options.data)
    return run_jobs("gandalf", left, options, lambda job: run_job(path, job, MORE), limit=60 * CPU_MINUTES)


if __name__ == "__main__":
    sys.exit(main())
