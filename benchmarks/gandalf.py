"""Gandalf: what label texts as training rows are worth (a study that can be resumed).

Run: python benchmarks/gandalf.py --data DIR [DIR ...] [--only ROW ...]
Writes results/gandalf.json. The rows follow the tables of the thesis behind Kharbanda et al. (2024, arXiv 2405.04545):
which data is used, other augmentations, graph and threshold, fewer labels, and D against Z u D for other systems.
InceptionXML's free vectors start at the mean of their points here, never at the label's text, so that D has seen no
label text at all; with few epochs, since a row must cost minutes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from _results import RESULTS, write_result
from _study import Row, arguments, run_study

BASES = {
    "Astec": "astec-cpu",
    "DECAF": "decaf-cpu",
    "ECLARE": "eclare-cpu",
    "InceptionXML-LF": "inceptionxml-lf-cpu",
    "UniDEC": "unidec-cpu",
}
BASE = ("heads.classifier.init=points", "training.epochs=3")


def inception(name: str, *changes: str) -> Row:
    """Return a row of InceptionXML."""
    return Row(f"InceptionXML: {name}", "inceptionxml-cpu", (*BASE, *changes))


def label_rows(*settings: str, max_targets: str = "null", known: str = "ignore") -> str:
    """Return the change that switches Gandalf on with these settings; by default in the form of the paper.

    That is without a limit of targets, and with targets from the graph also for texts whose labels train knows.
    """
    given = ["kind: gandalf", f"known: {known}", f"max_targets: {max_targets}", *settings]
    return f"augment={{{', '.join(given)}}}"


ROWS = [
    inception("D"),
    inception("Z u D", label_rows()),
    inception("Z", label_rows("rows_kept: labels")),
    inception("U(G, N)", label_rows("rows: train")),
    inception("Z1 u D", "augment={kind: gandalf, targets: self}"),
    inception("Z u D, GLaS", label_rows("targets: glas")),
    inception("walk", label_rows("graph: walk")),
    inception("at most 10 targets", label_rows(max_targets="10")),
    inception("at most 5 targets", label_rows(max_targets="5")),
    inception("known labels merged", label_rows(known="merge")),
    inception("known labels merged, at most 5 targets", label_rows(known="merge", max_targets="5")),
    inception("known labels merged, else Z1", label_rows(known="merge", max_targets="1")),
    inception("calibrated", label_rows("targets: calibrated")),
    inception("calibrated, known labels merged", label_rows("targets: calibrated", known="merge")),
    inception("shared counts", label_rows("graph: shared_counts")),
    inception("shrunk counts", label_rows("graph: shrunk_counts")),
    inception("delta 0", label_rows("delta: 0")),
    inception("delta 0.2", label_rows("delta: 0.2")),
    inception("MixUp", "augment=mixup"),
    inception("Label-MixUp", "augment=label_mixup"),
    inception("synonyms", "augment=synonyms"),
    *(
        inception(f"{share:.0%} of labels, {sample}", label_rows(f"share: {share}", f"sample: {sample}"))
        for share in (0.25, 0.5, 0.75)
        for sample in ("uniform", "tail")
    ),
    *(
        Row(f"{system}: {name}", recipe, changes)
        for system, recipe in BASES.items()
        for name, changes in (("D", ()), ("Z u D", (label_rows(),)))
    ),
    Row("UniDEC: Z u D, at most 10 targets", "unidec-cpu", (label_rows(max_targets="10"),)),
]


def write_agreement(names: list[str]) -> None:
    """Add to results/agreement.json how many of Gandalf's targets train confirms, for each set."""
    import megalabel as ml
    from megalabel.augment import agreement, gandalf

    path = RESULTS / "agreement.json"
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    for name in names:
        data = ml.load(name)
        confirmed = agreement(data, gandalf(data, known="ignore", max_targets=None))
        rows = [row for row in rows if row["data"] != Path(name).name]
        rows.append(
            {"data": Path(name).name, "texts": confirmed.texts, "targets": confirmed.targets, "right": confirmed.right}
        )
        print(
            f"{name}: {confirmed.texts:,} label texts are train texts, {confirmed.share:.1%} of their targets are right"
        )
    write_result("agreement", {"rows": rows})


if __name__ == "__main__":
    options = arguments(__doc__.splitlines()[0])
    write_agreement(options.data)
    sys.exit(run_study("gandalf", ROWS, options))
