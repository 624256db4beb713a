"""The number of labels to return: thresholds chosen on validation beside the best on test (a resumable study).

Run: python benchmarks/threshold.py --data DIR [DIR ...] [--recipe auto] [--seed 0]
Writes results/threshold.json after every set; a set that is there with the same recipe and seed is skipped. The
thresholds are those that training stores in the model. The best on test is only measured here, to compare: no model
ever gets it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _results import RESULTS
from _rows import Row, row_of

PRECISIONS = (0.7, 0.8, 0.9)
DEPTH = 100  # labels of a text at most
FIXED = 5


def main() -> int:
    """Measure what is missing, set by set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    row = Row(options.recipe, options.recipe)
    for data in options.data:
        result = row_of(RESULTS / "threshold.json", row, data, options.seed, __file__)
        micro, sample = result["micro_f1"], result["sample_f1"]
        print(
            f"{result['data']}: micro F1 {micro['chosen']:.2f}, at best {micro['best']:.2f}; "
            f"sample F1 {sample['chosen']:.2f}, at best {sample['best']:.2f}",
            flush=True,
        )
    return 0


def run(request: dict[str, Any], out: Path) -> None:
    """Train on one set and measure its thresholds on test."""
    import megalabel as ml

    data = ml.load(request["data"])
    start, used = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        model = ml.train(
            request["recipe"], data, Path(folder) / "run", changes=request["changes"], seed=request["seed"]
        )
    times = {"fit_seconds": time.perf_counter() - start, "fit_cpu_seconds": time.process_time() - used}
    row = {name: request[name] for name in ("recipe", "seed")} | {"data": Path(request["data"]).name}
    out.write_text(json.dumps(row | measure(model, data) | times), encoding="utf-8")


def measure(model: Any, data: Any) -> dict[str, Any]:
    """Return F1 at the stored thresholds, at the best ones and with a fixed number of labels; precisions reached."""
    import numpy as np

    from megalabel.errors import SettingError
    from megalabel.metrics import set_curve

    top = model.search(data.test.texts, min(DEPTH, len(data.labels)), exclude=data.test.excluded())
    truth, stored = data.test.targets, model.thresholds
    curve = set_curve(top.ids, top.scores, truth)
    fixed = set_curve(top.ids[:, :FIXED], top.scores[:, :FIXED], truth).rows()[-1]

    def at(threshold: float) -> Any:
        return set_curve(top.ids, top.scores, truth, thresholds=np.array([threshold])).figures(0)

    result: dict[str, Any] = {
        "validation_rows": stored.rows, "test_rows": len(data.test), "labels": len(data.labels),
        "relevant_per_text": truth.nnz / len(data.test),
    }  # fmt: skip
    for goal in ("micro-f1", "sample-f1"):
        name, chosen = goal.replace("-", "_"), stored.choose(goal)
        best = curve.figures(curve.best(name))
        figures = at(chosen.value)
        result[name] = {
            "threshold": chosen.value, "best_threshold": best.threshold, "validation": getattr(chosen.expected, name),
            "chosen": getattr(figures, name), "best": getattr(best, name), f"first_{FIXED}": getattr(fixed, name),
            "labels_per_text": figures.labels_per_text, "empty": figures.empty,
        }  # fmt: skip
    reached = []
    for precision in PRECISIONS:
        try:
            chosen = stored.choose(precision=precision)
        except SettingError:  # no threshold reaches it on validation rows
            reached.append({"asked": 100 * precision, "threshold": None})
            continue
        figures = at(chosen.value)
        shown = {name: getattr(figures, name) for name in ("precision", "recall", "labels_per_text", "empty")}
        validation = chosen.expected.precision
        reached.append({"asked": 100 * precision, "threshold": chosen.value, "validation": validation, **shown})
    return {**result, "precision": reached}


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        run(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
