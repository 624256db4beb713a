"""What label features cost: heads that read texts (LTE of DECAF) or a graph of texts (GALE of ECLARE), beside Gandalf.

Run: python benchmarks/label_features_cost.py [--data DIR ...] [--encoders NAME ...] [--steps N] [--rounds R]
Writes results/label_features_cost.json; rows measured before stay. All rows of an encoder have the same batches, loss
and optimiser and differ in the head, or in the training rows. Steps alone are timed, as in gandalf_cost.py. Memory is
what the process holds after a step, and at most, beyond the data and the libraries. Linux only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from _results import RESULTS, write_result
from _rows import in_own_process
from gandalf_cost import worker

ENCODERS = {
    "bag": "{kind: bag, source: auto, options: {dim: 384, residual: false}}",
    "inception": "{kind: inception, source: auto, options: {dim: 384}}",
}
COMMON = "bias: true, temperature: {value: 0.05}, loss: {kind: bce}"
HEADS = {
    "free": f"{{kind: free, init: points, {COMMON}}}",
    "gated": f"{{kind: gated, projection: gated_residual, dropout: 0.1, {COMMON}}}",
    "graph": f"{{kind: graph, projection: relu_residual, dropout: 0.1, attention_dropout: 0.1, {COMMON}}}",
}
ROWS = {
    "free vectors": ("free", "none"),
    "free vectors, Gandalf": ("free", "gandalf"),
    "text and free (DECAF)": ("gated", "none"),
    "text, graph and free (ECLARE)": ("graph", "none"),
}
MEASURED = ("ms_per_1000_rows", "held_mib", "peak_mib", "begun_mib", "pool")


def main() -> int:
    """Measure every row with every encoder on every set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--steps", type=int, default=20, help="timed in each round, after three that are not")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--encoders", nargs="+", choices=list(ENCODERS), default=list(ENCODERS))
    options = parser.parse_args()
    path = RESULTS / "label_features_cost.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    for data in options.data:
        for encoder in options.encoders:
            settings = ENCODERS[encoder]
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ROWS}
            for _ in range(options.rounds):
                for name, (head, augment) in ROWS.items():
                    changes = [f"encoder={settings}", f"heads={{classifier: {HEADS[head]}}}", f"augment={augment}"]
                    request = {"recipe": "inceptionxml-cpu", "changes": changes, "data": data, "steps": options.steps}
                    runs[name].append(in_own_process([sys.executable, __file__], request))
            for name, measured in runs.items():
                row = {"encoder": encoder, "name": name, "data": Path(data).name}
                row |= {key: statistics.median(run[key] for run in measured) for key in MEASURED}
                row |= {"steps": options.steps, "rounds": options.rounds}
                key = [row[part] for part in ("encoder", "name", "data")]
                rows = [other for other in rows if [other[part] for part in ("encoder", "name", "data")] != key] + [row]
                held, peak = (row[part] - row["begun_mib"] for part in ("held_mib", "peak_mib"))
                time = f"{row['ms_per_1000_rows']:.0f} ms per 1,000 rows"
                print(
                    f"{row['data']}, {encoder}, {name}: {time}, {held:,.0f} MiB held, {peak:,.0f} at most", flush=True
                )
            write_result("label_features_cost", {"rows": rows}, "torch")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("{"):
        worker(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
