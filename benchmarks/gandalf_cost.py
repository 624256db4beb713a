"""What label texts as training rows cost: processor time per row of a step, and memory, with and without them.

Run: python benchmarks/gandalf_cost.py [--data DIR ...] [--systems NAME ...] [--steps N] [--rounds R]
Writes results/gandalf_cost.json; rows measured before stay. Each training runs in a process of its own. Its steps
alone are timed (no evaluation, no mining), kind after kind in each round, and the median of the rounds counts; texts
are shuffled, so that a step of Z u D has as many label texts as their share of the rows. Memory held is what the
process holds after a step of its own (files that are mapped do not count) once what is free is given back, the median
over steps; at most, the peak since it began, reading the data and making the rows included. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from _results import RESULTS, write_result
from _rows import in_own_process

SYSTEMS = {
    "InceptionXML": ("inceptionxml-cpu", ("heads.classifier.init=points",)),
    "Astec": ("astec-cpu", ("stages=[]", "spaces={}", "freeze=[encoder]")),  # its second stage
}
KINDS = {
    "D": "augment=none",
    "Z u D": "augment=gandalf",
    "Z u D, no limit of targets": "augment={kind: gandalf, max_targets: null}",
}


def main() -> int:
    """Measure every system on every set, with each kind of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--steps", type=int, default=30, help="timed in each round, after three that are not")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    options = parser.parse_args()
    path = RESULTS / "gandalf_cost.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    for data in options.data:
        for system in options.systems:
            recipe, changes = SYSTEMS[system]
            runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
            for _ in range(options.rounds):
                for kind, change in KINDS.items():
                    request = {"recipe": recipe, "changes": [*changes, change], "data": data, "steps": options.steps}
                    runs[kind].append(in_own_process([sys.executable, __file__], request))
            for kind, measured in runs.items():
                row: dict[str, Any] = {"system": system, "rows": kind, "data": Path(data).name, "steps": options.steps}
                row["rounds"] = options.rounds
                for name in ("ms_per_1000_rows", "held_mib", "peak_mib", "pool", "targets_per_row"):
                    row[name] = statistics.median(run[name] for run in measured)
                mine = [row[name] for name in ("system", "rows", "data")]
                rows = [other for other in rows if [other[name] for name in ("system", "rows", "data")] != mine]
                rows.append(row)
                line = f"{row['ms_per_1000_rows']:.0f} ms per 1,000 rows, pool {row['pool']:,.0f}"
                memory = f"{row['held_mib']:,.0f} MiB held, {row['peak_mib']:,.0f} at most"
                print(f"{row['data']}, {system}, {kind}: {line}, {memory}", flush=True)
    write_result("gandalf_cost", {"rows": rows}, "torch")
    return 0


def live_mib() -> float:
    """Return the memory of the process that is its own and in use."""
    ctypes.CDLL(None).malloc_trim(0)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def worker(request: dict[str, Any], out: Path) -> None:
    """Train some steps and tell what they took."""
    import torch

    import megalabel as ml
    from megalabel.network.init import init_heads
    from megalabel.recipes.build import build_encoders, build_network
    from megalabel.recipes.load_recipe import load_recipe
    from megalabel.training.augment_train import augment_train
    from megalabel.training.loop import Loop
    from megalabel.training.phase import Texts

    recipe = load_recipe(request["recipe"], request["changes"])
    data = augment_train(recipe, ml.load(request["data"]))
    torch.manual_seed(recipe.seed)
    begun = live_mib()
    encoders = build_encoders(recipe, data)
    network = build_network(recipe, encoders, len(data.labels))
    texts = Texts.of(data, encoders)
    loop = Loop(recipe, network, data.train, texts.train, texts.labels)
    init_heads(network, data.train.targets, texts.train, texts.labels)
    seconds, rows, pools, held = 0.0, 0, [], []
    before = time.process_time()
    while len(pools) < request["steps"] + 3:
        for result in loop.run_epoch():
            now = time.process_time()
            pools.append(result.statistics["pool_size"])
            if len(pools) > 3:
                seconds, rows = seconds + now - before, rows + result.queries
                held.append(live_mib())
            before = time.process_time()
            if len(pools) == request["steps"] + 3:
                break
    figures = {
        "ms_per_1000_rows": 1e6 * seconds / rows,
        "held_mib": statistics.median(held),
        "begun_mib": begun,  # the data and the libraries
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "pool": statistics.mean(pools[3:]),
        "targets_per_row": data.train.targets.nnz / len(data.train),
    }
    out.write_text(json.dumps(figures))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("{"):
        worker(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
