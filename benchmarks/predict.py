"""How fast a fused model answers, beside XR-Linear in the same run: processor time of one thread (a resumable study).

Run: python benchmarks/predict.py [--data DIR ...] [--runs DIR ...] [--set KEY=VALUE ...]
Writes results/predict.json after every set. A run folder, given for each set, is used as it is; without one the recipe
is trained. Both systems get texts and make their features of them; models are in memory, and every text was asked for
once before, so that no page of a table is read for the first time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from _peers.environment import NoEnvironment, environment
from _results import RESULTS, write_result
from _rows import in_own_process

K = 10  # labels per text
BEAM = 20
QUERIES, BATCH = 300, 1_000
PACKAGES = ("numpy==1.26.4", "scipy==1.13.1", "scikit-learn==1.6.1")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MEGALABEL_PROGRESS": "0"}


def main() -> int:
    """Measure set by set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--runs", nargs="+", default=[], help="a run of each set, to be used as it is")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the recipe")
    options = parser.parse_args()
    if options.runs and len(options.runs) != len(options.data):
        parser.error("give one run for each set, or none")
    stored = RESULTS / "predict.json"
    rows = json.loads(stored.read_text(encoding="utf-8"))["rows"] if stored.is_file() else []
    for data, run in zip(options.data, options.runs or [None] * len(options.data), strict=True):
        row = measure({"data": data, "run": run, "recipe": options.recipe, "changes": options.set})
        rows = [other for other in rows if other["data"] != row["data"]] + [row]
        rows.sort(key=lambda each: each["labels"])
        write_result("predict", {"k": K, "batch": BATCH, "beam": BEAM, "rows": rows}, "torch", "numba")
        peer = row.get("xr_linear", {})
        for system, part in (("ours", row), ("XR-Linear", peer)):
            if part:
                figures = f"{part['query_ms']:.2f} ms a query, {part['texts_per_second']:,.0f} texts/s"
                print(f"{row['data']}: {system}: {figures}")
    return 0


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of both systems on one set, each in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        asked = {**request, "folder": scratch}
        row: dict[str, Any] = in_own_process([sys.executable, __file__], asked, variables=ONE_THREAD)
        row["load_average"] = os.getloadavg()[0]
        try:
            python = environment("libpecos", PACKAGES, ("libpecos==1.2.8",))
        except NoEnvironment as error:
            print(f"  {error}")
            return row
        script = Path(__file__).parent / "_peers" / "xr_linear_speed.py"
        peer = {"folder": str(folder), "beam": BEAM, "k": K, "queries": QUERIES, "batch": BATCH}
        row["xr_linear"] = in_own_process(
            [str(python), str(script)], peer, variables={**ONE_THREAD, "PYTHONPATH": ""}, quiet=True
        )
        return row


def run(request: dict[str, Any], out: Path) -> None:
    """Train or load a model, time its answers, and write what the peer starts from."""
    import numpy as np
    import torch
    from scipy import sparse

    import megalabel as ml

    torch.set_num_threads(1)
    data, folder = ml.load(request["data"]), Path(request["folder"])
    used = time.process_time()
    if request["run"] is None:
        ml.train(request["recipe"], data, folder / "run", changes=request["changes"])
    fit = time.process_time() - used
    model = ml.Model.load(request["run"] or folder / "run", device="cpu")
    texts = list(data.test.texts)

    def answer(some: list[str]) -> float:
        begin = time.process_time()
        model.search(some, K)
        return time.process_time() - begin

    answer(texts[:BATCH])
    answer(texts[:1])  # compiled for one query too
    single = [answer([text]) for text in texts[:QUERIES]]
    batch = texts[:BATCH]
    seconds = min(answer(batch) for _ in range(3))
    whole = data.refit()
    given = {"train": list(whole.train.texts), "test": texts}
    (folder / "texts.json").write_text(json.dumps(given), encoding="utf-8")
    targets = whole.train.without(whole.train.filter).targets.astype(np.float32)
    sparse.save_npz(folder / "targets.npz", targets, compressed=False)
    row = {
        "data": Path(request["data"]).name, "recipe": request["recipe"], "changes": request["changes"], "seed": 0,
        "split": "test", "labels": len(data.labels), "queries": len(single), "query_ms": 1e3 * median(single),
        "texts_per_second": len(batch) / seconds, "fit_cpu_seconds": None if request["run"] else fit,
    }  # fmt: skip
    out.write_text(json.dumps(row), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        run(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
