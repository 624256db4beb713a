"""The neighbours of one label in the label graph that Gandalf takes its targets from.

Run: python benchmarks/label_graph.py --data DIR "label text" [--data DIR "label text" ...]
Writes results/label_graph.json: for each set, the label, the labels that share most of its points, the weights of all
edges between them, and which of them the label's own train row confirms. docs/build.py draws it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from _results import write_result
from megalabel import load
from megalabel.cli._find_label import find_label
from megalabel.data.items import item_pairs, match_items
from megalabel.graphs import cooccurrence

DELTA = 0.1
NEIGHBOURS = 8


def main() -> int:
    """Look up one label in each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs=2, action="append", required=True, metavar=("DIR", "LABEL"))
    write_result(
        "label_graph", {"delta": DELTA, "rows": [graph(source, label) for source, label in parser.parse_args().data]}
    )
    return 0


def graph(source: str, text: str) -> dict[str, Any]:
    """Return the label, its nearest neighbours and the edges between all of them."""
    data = load(source)
    label = find_label(text, data.labels)
    weights = cooccurrence(data.train.targets, DELTA)
    own = weights[label]
    others = own.indices[own.indices != label]
    order = np.lexsort((others, -own[:, others].toarray()[0]))[:NEIGHBOURS]
    chosen = [label, *others[order].tolist()]
    known = item_pairs(data.train, match_items(data.train, data.labels))[label].indices
    counts = np.bincount(data.train.targets.indices, minlength=len(data.labels))
    among = weights[chosen][:, chosen].toarray()
    return {
        "data": Path(source).name,
        "label": data.labels.texts[label],
        "targets": int(own.nnz - 1),
        "confirmed": int(np.isin(others, known).sum()),
        "known": len(known),  # labels of the train row with the label's text
        "nodes": [
            {"text": data.labels.texts[number], "points": int(counts[number]), "confirmed": bool(number in known)}
            for number in chosen
        ],
        "edges": [
            [int(a), int(b), round(float(among[a, b]), 4)] for a, b in zip(*np.nonzero(among), strict=True) if a != b
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
