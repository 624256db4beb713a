"""Gandalf: what label texts as training rows are worth (a study that can be resumed).

Run: python benchmarks/gandalf.py --data DIR [DIR ...] [--only ROW ...]
Writes results/gandalf.json. The rows follow the tables of the thesis behind Kharbanda et al. (2024, arXiv 2405.02114):
which data is used, other augmentations, graph and threshold, fewer labels, and D against Z u D for other systems.
InceptionXML's free vectors start at the mean of their points here, never at the label's text, so that D has seen no
label text at all; with few epochs, since a row must cost minutes.
"""

from __future__ import annotations

import sys

from _study import Row, arguments, run_study

SHORT = ("training.epochs=3", "training.evaluate_every=3", "batching.refresh={start: 1, every: 2}")  # large sets
BASE = ("heads.classifier.start=points", "training.epochs=3")


def inception(name: str, *changes: str) -> Row:
    """Return a row of InceptionXML."""
    return Row(f"InceptionXML: {name}", "inceptionxml-cpu", (*BASE, *changes))


def gandalf(*settings: str) -> str:
    """Return the change that switches Gandalf on with these settings."""
    return f"augment={{{', '.join(['kind: gandalf', *settings])}}}"


ROWS = [
    inception("D"),
    inception("Z u D", gandalf()),
    inception("Z", gandalf("keep: labels")),
    inception("U(G, N)", gandalf("rows: train")),
    inception("Z1 u D", gandalf("targets: self")),
    inception("Z u D, GLaS", gandalf("targets: glas")),
    inception("walk", gandalf("graph: walk")),
    inception("at most 10 targets", gandalf("most: 10")),
    inception("delta 0", gandalf("delta: 0")),
    inception("delta 0.2", gandalf("delta: 0.2")),
    inception("MixUp", "augment=mixup"),
    inception("Label-MixUp", "augment=label_mixup"),
    inception("synonyms", "augment=synonyms"),
    *(
        inception(f"{share:.0%} of labels, {sample}", gandalf(f"share: {share}", f"sample: {sample}"))
        for share in (0.25, 0.5, 0.75)
        for sample in ("uniform", "tail")
    ),
    Row("Astec: D", "astec-cpu"),
    Row("Astec: Z u D", "astec-cpu", (gandalf(),)),
    Row("UniDEC: D", "unidec-cpu"),
    Row("UniDEC: Z u D", "unidec-cpu", (gandalf(),)),
    Row("UniDEC: Z u D, at most 10 targets", "unidec-cpu", (gandalf("most: 10"),)),
    Row("UniDEC, three epochs: D", "unidec-cpu", SHORT),
    Row("UniDEC, three epochs: Z u D", "unidec-cpu", (*SHORT, gandalf())),
]

if __name__ == "__main__":
    sys.exit(run_study("gandalf", ROWS, arguments(__doc__.splitlines()[0])))
