"""Every system on the same data with the same budget of processor time (a study that can be resumed).

Run: python benchmarks/systems.py --data DIR [DIR ...] [--seed 0 1 2] [--only NAME ...]
Writes results/systems.json. All systems have the same kind of encoder, a bag of features (InceptionXML has its
convolutions), one thread, and as many epochs as fit into five minutes of training; evaluation does not count. Epochs
are at most ten times those of the recipe. The best epoch is selected on validation rows. ``auto`` runs as it is, at its
own cost.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from _study import Row, arguments, run_study

CPU_MINUTES = 5.0
FEW_ROWS = "training.evaluate_on=2000"
SYSTEMS = {
    "DEXML": "dexml-cpu",
    "DEXML, hard negatives": "dexml-hnm-cpu",
    "DePSL": "depsl-cpu",
    "UniDEC": "unidec-cpu",
    "DPR": "dpr-cpu",
    "ANCE": "ance-cpu",
    "SimCSE": "simcse-cpu",
    "GraphSAGE": "graphsage-cpu",
    "NGAME": "ngame-cpu",
    "DEXA": "dexa-cpu",
    "SiameseXML": "siamesexml-cpu",
    "Renee": "renee-cpu",
    "Astec": "astec-cpu",
    "InceptionXML": "inceptionxml-cpu",
}
ROWS = [Row(name, recipe, (FEW_ROWS,)) for name, recipe in SYSTEMS.items()]
FLAGSHIP = Row("auto", "auto")


def main() -> int:
    """Run what is missing."""
    options = arguments(__doc__.splitlines()[0])
    budget = run_study("systems", ROWS, options, cpu_minutes=CPU_MINUTES)
    return budget or run_study("systems", [FLAGSHIP], options)


if __name__ == "__main__":
    sys.exit(main())
