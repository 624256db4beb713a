"""UniDEC on a CPU: what each head, hard negatives and clustered batches are worth (a study that can be resumed).

Run: python benchmarks/unidec.py --data DIR [DIR ...]
Writes results/unidec.json. The heads of one run are measured together and alone, as in Table 2.5 of Kharbanda et al.
(2024, arXiv 2405.03714); the other rows switch off one part each, or are the neighbouring recipes.
"""

from __future__ import annotations

import sys

from _study import Row, arguments, run_study

NO_NEGATIVES = "batching.negatives.mined=0"
NO_CLUSTERS = "batching.order=shuffled"
SHORT = ("training.epochs=3", "training.evaluate_every=3", "batching.refresh={start: 1, every: 2}")  # large sets

ROWS = [
    Row("UniDEC", "unidec-cpu"),
    Row("no hard negatives", "unidec-cpu", (NO_NEGATIVES,)),
    Row("no clusters", "unidec-cpu", (NO_CLUSTERS,)),
    Row("neither", "unidec-cpu", (NO_NEGATIVES, NO_CLUSTERS, "batching.refresh={}")),
    Row("no matrix on the query side", "unidec-cpu", ("heads.dual.query_matrix=false",)),
    Row("DePSL", "depsl-cpu"),
    Row("DEXML with hard negatives", "dexml-hnm-cpu"),
    Row("DEXML over all labels", "dexml-cpu"),
    Row("three epochs", "unidec-cpu", SHORT),
    Row("three epochs, no hard negatives", "unidec-cpu", (*SHORT, NO_NEGATIVES)),
    Row("three epochs, no clusters", "unidec-cpu", (*SHORT, NO_CLUSTERS)),
]

if __name__ == "__main__":
    sys.exit(run_study("unidec", ROWS, arguments(__doc__.splitlines()[0])))
