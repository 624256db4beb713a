"""Training speed and memory against sentence-transformers: the same MiniLM, titles, pairs and batches in one run.

Run: python benchmarks/training.py [--data D ...] [--rounds N] [--fresh]
Every system trains in a process of its own, the systems take turns, and medians over the
rounds are compared. sentence-transformers runs through its own trainer with
MultipleNegativesRankingLoss, and at the largest batch with the Cached variant too; ours is the loop of a
recipe, with a softmax over the labels of the batch, whole or in chunks of as many texts as
the Cached loss takes. Both have dropout on, fused AdamW, gradients clipped to norm 1 and the time
for tokens within. Rates are per second of processor time, of one thread by default, so that
neighbours on the machine do not count; on an idle one this is the time on the clock. Prints
a table, writes results/training.json after every run (runs that are there are not done again),
and ends with exit code 1 where we are not twice as fast at the model's own length, or need
more memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from _results import RESULTS, write_result
from megalabel import load

OURS, THEIRS = "megalabel", "MultipleNegativesRankingLoss"
OURS_CACHED, THEIRS_CACHED = "megalabel in chunks", "CachedMultipleNegativesRankingLoss"
RIVALS = {OURS: THEIRS, OURS_CACHED: THEIRS_CACHED}
CHUNK = 32  # texts; the default of the Cached loss
RATE, TEMPERATURE = 2e-5, 0.05  # the temperature is 1 / scale, 20 by default
OWN_LENGTH = 256  # of MiniLM in sentence-transformers
LEAST_RATIO = 2.0
CASE = ("data", "max_length", "batch_size", "system")
FIGURES = ("queries_per_second", "queries_per_second_on_the_clock", "peak_mib", "held_mib", "loss")
STEPS = {64: 5, 256: 2}  # of which the first is not timed


def draw_pairs(data, count: int, seed: int) -> list[tuple[str, str]]:
    """Return titles of distinct training points, each with that of one of its labels."""
    rng = np.random.default_rng(seed)
    targets = data.train.targets
    some = rng.permutation(np.flatnonzero(np.diff(targets.indptr)))[:count]
    if len(some) < count:
        raise SystemExit(f"{data.name} has {len(some):,} training points with labels, {count:,} are needed")
    picks = [int(rng.integers(targets.indptr[row], targets.indptr[row + 1])) for row in some]
    return [
        (data.train.texts[row], data.labels.texts[targets.indices[pick]]) for row, pick in zip(some, picks, strict=True)
    ]


# ------------------------------------------------------------------ in the process of one system


def now_mib() -> float:
    """Return the memory this process holds, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def clocks() -> np.ndarray:
    """Return seconds of processor time and on the clock."""
    return np.array([time.process_time(), time.perf_counter()])


def train_ours(case: dict) -> dict[str, object]:
    """Train by the loop of a recipe; tokens are made once, before it, and count."""
    from scipy import sparse

    from megalabel.batching.order import Shuffled
    from megalabel.data.dataset import Dataset, Labels, Split
    from megalabel.recipes.build import build_encoders, build_network
    from megalabel.recipes.load_recipe import load_recipe
    from megalabel.training.loop import Loop

    batch, length = case["batch_size"], case["max_length"]
    changes = [
        "encoder.source=minilm",
        "encoder.options={pooling: mean}",
        f"encoder.query_length={length}",
        f"encoder.label_length={length}",
        "heads.dual.loss.kind=softmax",
        f"heads.dual.temperature.value={TEMPERATURE}",
        "batching.negatives={}",
        "batching.refresh={}",
        f"batching.batch_size={batch}",
        "training.epochs=1",
        f"training.encoder.lr={RATE}",
        "training.encoder.weight_decay=0",
        "training.warmup=0",
        "training.clip=1.0",
        f"training.chunk_size={CHUNK if case['system'] == OURS_CACHED else 2 * batch}",
    ]
    recipe = load_recipe("dexml-hnm", changes)
    pairs = case["pairs"]
    place = np.concatenate(Shuffled(np.arange(len(pairs)), batch, recipe.seed).batches(0))
    texts = [""] * len(pairs)
    for row, (query, _) in zip(place, pairs, strict=True):
        texts[row] = query  # so that the loop's shuffled batches are the batches given
    labels = list(dict.fromkeys(label for _, label in pairs))
    number = {label: column for column, label in enumerate(labels)}
    cells = (np.ones(len(pairs), dtype=np.float32), (place, [number[label] for _, label in pairs]))
    targets = sparse.csr_matrix(cells, shape=(len(pairs), len(labels)))
    split = Split(texts, targets, [str(row) for row in range(len(texts))])
    data = Dataset(train=split, test=split, labels=Labels(labels, labels))
    network = build_network(recipe, build_encoders(recipe, data), len(labels))
    held = now_mib()
    start = clocks()
    tokens = network.tokenise(texts), network.tokenise(labels)
    tokenising = (clocks() - start) / len(pairs) * batch  # per step
    times, losses = [clocks()], []
    for result in Loop(recipe, network, split, *tokens).run_epoch():
        times.append(clocks())
        losses.append(result.loss)
    return {"seconds": (np.diff(times, axis=0) + tokenising).tolist(), "losses": losses, "held_mib": held}


def train_theirs(case: dict) -> dict[str, object]:
    """Train by the trainer of sentence-transformers, with its defaults; batches come in the order given."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from torch.utils.data import SequentialSampler
    from transformers import TrainerCallback

    from megalabel.encoders._source import folder_of

    try:
        from sentence_transformers.base.sampler import DefaultBatchSampler
    except ImportError:
        from sentence_transformers.sampler import DefaultBatchSampler

    class Clock(TrainerCallback):
        """Write down when each step ends."""

        def __init__(self) -> None:
            self.times: list[np.ndarray] = []

        def on_train_begin(self, *_, **__) -> None:
            self.times.append(clocks())

        def on_step_end(self, *_, **__) -> None:
            self.times.append(clocks())

    def in_order(dataset, **options) -> DefaultBatchSampler:
        return DefaultBatchSampler(SequentialSampler(dataset), **options)

    model = SentenceTransformer(str(folder_of("minilm")), device="cpu")
    model.max_seq_length = case["max_length"]
    scale = {"scale": 1 / TEMPERATURE}
    if case["system"] == THEIRS:
        loss = losses.MultipleNegativesRankingLoss(model, **scale)
    else:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=CHUNK, **scale)
    queries, labels = zip(*case["pairs"], strict=True)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = Arguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=case["batch_size"],
            learning_rate=RATE,
            optim="adamw_torch_fused",
            max_grad_norm=1.0,
            use_cpu=True,
            batch_sampler=in_order,
            save_strategy="no",
            logging_strategy="steps",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"anchor": queries, "positive": labels}),
            loss=loss,
            callbacks=[clock],
        )
        held = now_mib()
        trainer.train()
    history = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    return {"seconds": np.diff(clock.times, axis=0).tolist(), "losses": history, "held_mib": held}


def child(path: Path) -> None:
    """Train one case, and write what it took beside it."""
    case = json.loads(path.read_text(encoding="utf-8"))
    import torch

    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    result = (train_ours if case["system"] in RIVALS else train_theirs)(case)
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    path.with_suffix(".out").write_text(json.dumps(result), encoding="utf-8")


# ---------------------------------------------------------------------------- all systems in turn


def run(case: dict, folder: Path) -> dict[str, float]:
    """Train a case in a new process and return its figures."""
    path = folder / "case.json"
    path.write_text(json.dumps(case), encoding="utf-8")
    quiet = {"MEGALABEL_PROGRESS": "0", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    quiet |= {"OMP_NUM_THREADS": str(case["threads"]), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, __file__, "--child", str(path)]
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case['system']} failed:\n{done.stderr[-2000:]}")
    result = json.loads(path.with_suffix(".out").read_text(encoding="utf-8"))
    timed = np.array(result["seconds"][1:])
    busy, clock = case["batch_size"] * len(timed) / timed.sum(axis=0)
    memory = (result["peak_mib"], result["held_mib"])
    return dict(zip(FIGURES, (float(busy), float(clock), *memory, statistics.fmean(result["losses"])), strict=True))


def systems_for(batch: int, batches: list[int]) -> list[str]:
    """Return the systems in the order of their turns; those in chunks take part in the largest of several batches."""
    return [OURS, THEIRS, *((OURS_CACHED, THEIRS_CACHED) if batch == max(batches) > min(batches) else ())]


def summarise(runs: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the medians over the rounds of each case and system, ours with the ratios to the rival's."""
    groups: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for one in runs:
        groups.setdefault(tuple(one[name] for name in CASE), []).append(one)
    rows = {}
    for key, rounds in groups.items():
        medians = {name: round(statistics.median(one[name] for one in rounds), 3) for name in FIGURES}
        rows[key] = dict(zip(CASE, key, strict=True)) | {"rounds": len(rounds)} | medians
    for (*case, system), row in rows.items():
        rival = rows.get((*case, RIVALS.get(system)))
        if rival:
            row["speed_ratio"] = round(row["queries_per_second"] / rival["queries_per_second"], 2)
            row["memory_ratio"] = round(row["peak_mib"] / rival["peak_mib"], 2)
    return list(rows.values())


def earlier(settings: dict[str, object]) -> list[dict[str, object]]:
    """Return the runs of an interrupted benchmark with the same settings, to go on from."""
    path = RESULTS / "training.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = all(document.get(name) == value for name, value in settings.items())
    return document.get("runs", []) if same else []


def show(rows: list[dict[str, object]]) -> None:
    """Print the figures as a table."""
    table = Table("data", "tokens at most", "batch", "system", "queries/s", "peak MiB", "speed", "memory", "loss")
    for row in rows:
        ratios = [f"{row[name]:.2f}x" if name in row else "" for name in ("speed_ratio", "memory_ratio")]
        figures = [f"{row['queries_per_second']:.1f}", f"{row['peak_mib']:,.0f}", *ratios, f"{row['loss']:.3f}"]
        table.add_row(row["data"], str(row["max_length"]), str(row["batch_size"]), row["system"], *figures)
    Console(width=120).print(table)


def main() -> int:
    """Measure all cases and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="built-in names, folders or files")
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 256], help="queries of a batch")
    parser.add_argument("--lengths", nargs="+", type=int, default=[OWN_LENGTH, 32], help="tokens of a text at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="measure again what results/training.json has")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    settings = {"threads": options.threads, "chunk_size": CHUNK}
    runs = [] if options.fresh else earlier(settings)
    done = {tuple(one[name] for name in (*CASE, "round")) for one in runs}
    sets = [load(name) for name in options.data]
    cases = itertools.product(range(options.rounds), sets, options.lengths, options.batches)
    with tempfile.TemporaryDirectory() as folder:
        for number, data, length, batch in cases:
            pairs = draw_pairs(data, batch * STEPS.get(batch, 2), seed=number)
            for system in systems_for(batch, options.batches):
                key = {"data": data.name, "max_length": length, "batch_size": batch, "system": system, "round": number}
                if tuple(key.values()) in done:
                    continue
                figures = run({**key, "pairs": pairs, "threads": options.threads}, Path(folder))
                runs.append(key | figures)
                rate = figures["queries_per_second"]
                print(f"round {number + 1}, {data.name}, {length} tokens, batch {batch}: {system} {rate:.1f} queries/s")
                document = {**settings, "rows": summarise(runs), "runs": runs}
                write_result("training", document, "torch", "transformers", "sentence-transformers")
    rows = summarise(runs)
    show(rows)
    slow = [
        row for row in rows if row["max_length"] == OWN_LENGTH and row.get("speed_ratio", LEAST_RATIO) < LEAST_RATIO
    ]
    large = [row for row in rows if row.get("memory_ratio", 0) > 1]
    return 1 if slow or large else 0


if __name__ == "__main__":
    sys.exit(main())
