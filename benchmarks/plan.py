"""How far ``megalabel plan`` is from the memory of real trainings.

Run: python benchmarks/plan.py [--only NAME]
Writes results/plan.json: for short real trainings, the peak of resident memory beside the planned one. Each training is
run three times, each time in its own process with one thread; the median counts, since what the C library returns to
the system differs from run to run. What Python holds once everything is imported is subtracted from both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from _results import write_result

TIMES = 3  # a training is run
FEW = "synthetic:points=10000,labels=5000"  # to fit linear classifiers on, twice
SMALL, LARGE = "synthetic:points=20000,labels=10000", "synthetic:points=100000,labels=100000"
SHORT = ["training.epochs=2", "training.evaluate_on=500"]
EARLY = [*SHORT, "batching.refresh={start: 1, every: 2}"]
NEVER = [*SHORT, "batching.refresh.start=9"]
MINILM = ["encoder.source=minilm", "batching.batch_size=128", "training.chunk_size=256", "training.epochs=2"]

# Name, recipe, data, changes, steps of an epoch that are run.
RUNS: list[tuple[str, str, str, list[str], int]] = [
    ("dexml, 10,000 labels", "dexml-cpu", SMALL, SHORT, 3),
    ("dexml, 100,000 labels", "dexml-cpu", LARGE, [*SHORT, "batching.batch_size=256"], 2),
    ("unidec, 10,000 labels", "unidec-cpu", SMALL, EARLY, 3),
    ("unidec, 100,000 labels", "unidec-cpu", LARGE, NEVER, 2),
    ("inceptionxml, 10,000 labels", "inceptionxml-cpu", SMALL, EARLY, 3),
    ("astec, 10,000 labels", "astec-cpu", SMALL, SHORT, 3),
    ("auto, 5,000 labels", "auto", FEW, SHORT, 3),
    ("unidec with MiniLM, 2,000 labels", "unidec", "synthetic:points=4000,labels=2000", [*MINILM, *NEVER[1:]], 2),
]


def main() -> int:
    """Measure every run, or those that --only selects."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="part of the name of the runs to measure; nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return train(**json.loads(options.child))
    rows = [measure(*run) for run in RUNS if options.only is None or options.only in run[0]]
    if options.only is None:
        write_result("plan", {"threads": 1, "rows": rows}, "torch")
    return 0


def measure(name: str, recipe: str, data: str, changes: list[str], steps: int) -> dict[str, Any]:
    """Train a few times in separate processes, and plan the same training."""
    from megalabel import load
    from megalabel.plan import plan
    from megalabel.plan.memory import PROGRAM

    arguments = json.dumps({"recipe": recipe, "data": data, "changes": changes, "steps": steps})
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MEGALABEL_PROGRESS": "0"}
    command = [sys.executable, __file__, "--child", arguments]
    runs = []
    for _ in range(TIMES):
        done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, check=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    held = [run["peak"] - run["imported"] for run in runs]
    planned = plan(recipe, data=load(data), changes=changes, device="cpu", memory=1e12)
    row = {
        "name": name, "recipe": recipe, "data": data, "changes": changes, "steps": steps,
        "imported_bytes": round(median(run["imported"] for run in runs)),
        "measured_bytes": round(median(held)),
        "measured_range": [min(held), max(held)],
        "planned_bytes": round(planned.device_bytes - PROGRAM),
        "planned_moment": planned.moment,
    }  # fmt: skip
    row["ratio"] = round(row["planned_bytes"] / row["measured_bytes"], 3)
    low, middle, high, plan_mib = (
        size / 2**20 for size in (min(held), row["measured_bytes"], max(held), row["planned_bytes"])
    )
    print(f"{name}: {middle:,.0f} MiB ({low:,.0f} to {high:,.0f}), planned {plan_mib:,.0f}, ratio {row['ratio']:.2f}")
    return row


def train(recipe: str, data: str, changes: list[str], steps: int) -> int:
    """Train on the first ``steps`` batches of every epoch, and print the peak memory."""
    import torch

    import megalabel.cli.train  # noqa: F401
    from megalabel import load
    from megalabel.recipes import load_recipe
    from megalabel.trainer import train as run
    from megalabel.training.loop import Loop

    torch.set_num_threads(1)
    imported = resident("VmRSS")
    order = Loop._order
    Loop._order = lambda self, builder: Few(order(self, builder), steps)  # type: ignore[method-assign,assignment,return-value]
    with tempfile.TemporaryDirectory() as folder:
        run(load_recipe(recipe, changes), load(data), Path(folder) / "run")
    print(json.dumps({"imported": imported, "peak": resident("VmHWM")}))
    return 0


class Few:
    """An order that stops after a few batches."""

    def __init__(self, order: Any, steps: int) -> None:
        self.order, self.steps = order, steps

    def batches(self, epoch: int) -> list[Any]:
        """Return the first batches of the epoch."""
        return list(self.order.batches(epoch))[: self.steps]


def resident(name: str) -> int:
    """Return the memory of this process: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    sys.exit(main())
