"""Memorisation: how many random query-label pairs a dual encoder learns by heart, and at what cost.

Run: python benchmarks/memorisation.py [--pairs 1000 10000 100000 1000000]      the last one: half an hour, 6 GiB
Texts of eight noise words, each with one label drawn at random: nothing can be learnt but the pairs themselves. A bag
of features and a text head, no vector of a label's own, are trained against the labels of the batch; recall@1 is
measured on (up to 10,000 of) the training pairs. Rows already in results/memorisation.json (same recipe, data and seed)
are kept. Ends with exit code 1 if 10,000 pairs are not learnt to over 95%.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch

from _results import RESULTS, write_result
from megalabel import load, train
from megalabel.recipes.load_recipe import dump_recipe, make_recipe
from megalabel.training.run_log import read_log

PATH = RESULTS / "memorisation.json"
LEAST = 95.0  # recall@1 in percent
MILLION = 1_000_000
EPOCHS = 6
TESTED = 10_000  # training pairs recall is measured on, at most


def recipe(pairs: int, seed: int):
    """Return the recipe: hashed words and word pairs with room for every text, one text head, in-batch negatives."""
    words, bigrams = (1 << max(14, (size - 1).bit_length()) for size in (2 * pairs, pairs))  # two words a label
    return make_recipe({
        "name": "memorisation",
        "paper": "none: a test of what a dual encoder can hold",
        "about": "a bag and a text head on random pairs",
        "seed": seed,
        "encoder": {
            "kind": "bag",
            "source": None,
            "options": {"dim": 128, "words": words, "bigrams": bigrams, "characters": 0, "residual": False},
        },
        "heads": {"dual": {"kind": "text", "temperature": {"value": 0.05}, "loss": {"kind": "decoupled_softmax"}}},
        "batching": {"batch_size": min(1024, max(64, pairs // 10)), "positives": {"pick": "all"}},
        "training": {
            "epochs": EPOCHS,
            "encoder": {"kind": "adamw", "lr": 1e-3},
            "tables": {"kind": "row_adagrad", "lr": 0.1},
            "schedule": "linear",
            "warmup": 0.05,
            "clip": None,
            "chunk_size": 8192,
            "evaluate_every": EPOCHS,
        },
    })  # fmt: skip


def memory(field: str = "VmHWM") -> float:
    """Return VmRSS (now) or VmHWM (most so far) of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measure_one(pairs: int, seed: int) -> dict[str, object]:
    """Train on so many pairs and measure on them."""
    name = f"synthetic:kind=random-pairs,points={pairs * 5 // 4},labels={pairs},labels_per_point=1,seed={seed}"
    data = load(name)
    order = np.random.default_rng(seed).permutation(pairs)  # val repeats train points too, so that nothing is held out
    data = data.replace(test=data.train.rows(order[:TESTED]), val=data.train.rows(order[:500]))
    chosen = recipe(pairs, seed)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, start = memory("VmRSS"), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        model = train(chosen, data, Path(folder) / "run")
        seconds, more = time.perf_counter() - start, memory() - before
        log = [row for row in read_log(Path(folder) / "run" / "metrics.jsonl") if "loss" in row]
    result = model.evaluate(data).metrics
    row = {
        "pairs": pairs, "data": name, "seed": seed, "recipe": digest(pairs, seed), "epochs": EPOCHS,
        "table_rows": model.network.encoder.features.rows, "dim": model.network.encoder.dim,
        "seconds": round(seconds, 1), "pairs_per_second": round(pairs * EPOCHS / seconds),
        "more_memory_mib": round(more), "recall@1": round(result["R@1"], 2), "recall@10": round(result["R@10"], 2),
        "loss_first": round(log[0]["loss"], 4), "loss_last": round(float(np.mean([r["loss"] for r in log[-5:]])), 4),
    }  # fmt: skip
    print(", ".join(f"{key} {value}" for key, value in row.items() if key not in ("data", "recipe")), flush=True)
    return row


def digest(pairs: int, seed: int) -> str:
    """Return a short name of the recipe as it is now."""
    return blake2b(dump_recipe(recipe(pairs, seed)).encode(), digest_size=8).hexdigest()


def to_a_million(rows: list[dict]) -> dict[str, object] | None:
    """Extrapolate from the largest size run: time and memory of training grow with it; None if a million ran."""
    last = max(rows, key=lambda row: row["pairs"])
    if last["pairs"] >= MILLION:
        return None
    factor = MILLION / last["pairs"]
    return {
        "extrapolated": True,
        "from_pairs": last["pairs"],
        "training_minutes": round(last["seconds"] * factor / 60, 1),
        "memory_gib": round(last["more_memory_mib"] * factor / 1024, 1),
    }


def main() -> int:
    """Run the sizes that are not there yet and write all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=PATH)
    options = parser.parse_args()
    os.environ["MEGALABEL_PROGRESS"] = "0"
    if len(options.pairs) > 1:  # a process for each size, so that none inherits the memory of another
        common = ["--seed", str(options.seed), "--out", str(options.out)]
        codes = [subprocess.call([sys.executable, __file__, "--pairs", str(size), *common]) for size in options.pairs]
        return max(codes)
    rows = json.loads(options.out.read_text())["rows"] if options.out.is_file() else []
    for pairs in options.pairs:
        key = (pairs, options.seed, digest(pairs, options.seed))
        if any((row["pairs"], row["seed"], row["recipe"]) == key for row in rows):
            print(f"{pairs:,} pairs: already there")
            continue
        rows = [row for row in rows if (row["pairs"], row["seed"]) != key[:2]] + [measure_one(pairs, options.seed)]
        rows.sort(key=lambda row: (row["pairs"], row["seed"]))
        about = {"threads": torch.get_num_threads(), "epochs": EPOCHS, "rows": rows}
        write_result("memorisation", {**about, "a_million": to_a_million(rows)}, "torch", out=options.out)
    return 0 if min(row["recall@1"] for row in rows) > LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
