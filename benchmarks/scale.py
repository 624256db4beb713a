"""What a training step costs as labels grow to 1.3 million: time, and memory beside what ``megalabel plan`` says.

Run: python benchmarks/scale.py [--labels 10000 100000 1300000] [--steps 200] [--ranks 2] [--load]
Writes results/scale.json. The data is synthetic and as large as LF-AmazonTitles-1.3M: 2.2 million points of 22 labels,
drawn by a law of Zipf; texts are token ids. Tokens and targets lie on disk and are mapped. Every row is a process of
its own with one thread: UniDEC on a pool of labels, and DEXML on all of them. Takes 2 GiB of disk and 8 of memory.
With --load the largest set is written as JSON lines and loaded, by one process and by two; nothing else is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from _load import load, measure_load, write_folder
from _results import RESULTS, origin, write_result

POINTS, EACH = 2_200_000, 22
WORDS, TEXT, NOISE, BLOCK = 1 << 18, 6, 3, 65_536
GROWTH = 0.82  # n words hold about n ** this different ones, as in real texts
DIM, BATCH = 384, 1024
BAG = f"encoder={{kind: bag, source: null, options: {{dim: {DIM}, words: {WORDS}, bigrams: 0, characters: 0}}}}"
KINDS = {
    "pool": ("unidec-cpu", [BAG, f"batching.batch_size={BATCH}"]),
    "all": ("dexml-cpu", [BAG, f"batching.batch_size={BATCH}"]),
}
STEP = ("equal texts", "loss", "backward", "encoder again", "update")  # moments of a plan within a step
AWAY = ("texts and targets", "tokens", "mined lists", "clusters", "program")  # on disk, not there, there before


def main() -> int:
    """Measure all sizes, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_300_000])
    parser.add_argument("--steps", type=int, default=200, help="of the pool")
    parser.add_argument("--ranks", type=int, default=2, help="that share the largest pool in one more row; 1 for none")
    parser.add_argument("--folder", type=Path, help="where the data goes; by default a temporary folder")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plan", action="store_true", help="plan again what was measured before, and measure nothing")
    parser.add_argument("--load", action="store_true", help="measure loading of the largest set instead, with --ranks")
    parser.add_argument("--points", type=int, default=POINTS, help="of the set to load")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        given = json.loads(options.child)
        return load(given["load"], given["ranks"], Watch, anonymous) if "load" in given else step(**given)
    if options.load:
        return loads(options.labels[-1], options.points, options.ranks, options.folder, options.out)
    if options.plan:
        path = options.out or RESULTS / "scale.json"
        result = json.loads(path.read_text(encoding="utf-8"))
        result["rows"] = [beside_plan(row) for row in result["rows"]]
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        home = options.folder or Path(temporary)
        for labels in options.labels:
            folder = home / str(labels)
            make_data(folder, labels)
            few = {"pool": options.steps, "all": max(1, min(5, 200_000 // labels))}
            rows += [measure(folder, labels, kind, few[kind]) for kind in KINDS]
        if options.ranks > 1:
            rows.append(measure(folder, labels, "pool", max(10, options.steps // 5), ranks=options.ranks))
    write_result(
        "scale", {"threads": 1, "batch": BATCH, "dim": DIM, "labels_per_point": EACH, "rows": rows}, "torch",
        out=options.out,
    )  # fmt: skip
    return 0


def loads(labels: int, points: int, ranks: int, home: Path | None, out: Path | None) -> int:
    """Load the largest set from JSON lines, and put the figures into the results."""
    with tempfile.TemporaryDirectory(dir=home) as temporary:
        made, folder = Path(temporary) / "made", Path(temporary) / "set"
        make_data(made, labels, points)
        split, queries, _ = open_data(made, labels)
        size = write_folder(folder, split, queries, np.load(made / "labels.npy", mmap_mode="r"))
        shutil.rmtree(made)
        rows = [measure_load(folder, count, __file__) for count in sorted({1, ranks})]
    path = out or RESULTS / "scale.json"
    result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    result["load"] = {"machine": origin(), "bytes": size, "rows": rows}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(rows, indent=1))
    return 0


# ------------------------------------------------------------------------- data


def make_data(folder: Path, labels: int, points: int = POINTS) -> None:
    """Write tokens and targets block by block: a label has six words, a point one of each of its labels, and noise."""
    if (folder / "labels.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(labels)
    ends = np.cumsum(1.0 / (np.arange(1.0, labels + 1) + min(50.0, labels / 20)))
    name = rng.permutation(labels).astype(np.int32)  # frequent labels lie anywhere
    words = draw_words(rng, (labels, TEXT))
    np.save(folder / "labels.npy", words)
    lengths = []
    with (folder / "cols.bin").open("wb") as cols, (folder / "tokens.bin").open("wb") as tokens:
        for start in range(0, points, BLOCK):
            count = min(BLOCK, points - start)
            drawn = np.searchsorted(ends, rng.random((count, EACH + 1)) * ends[-1], side="right")
            drawn = np.sort(name[np.minimum(drawn, labels - 1)], axis=1)
            keep = np.ones(drawn.shape, dtype=bool)
            keep[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
            cols.write(drawn[keep].tobytes())
            own = words[drawn, rng.integers(TEXT, size=drawn.shape)]
            both = np.concatenate([own, draw_words(rng, (count, NOISE))], axis=1)
            tokens.write(both[np.concatenate([keep, np.ones((count, NOISE), dtype=bool)], axis=1)].tobytes())
            lengths.append(keep.sum(axis=1))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    np.save(folder / "indptr.npy", indptr)
    np.save(folder / "offsets.npy", indptr + NOISE * np.arange(len(indptr)))
    np.ones(indptr[-1], dtype=np.float32).tofile(folder / "ones.bin")


def draw_words(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Return rows of the table of words, as often as words come in texts, hashed."""
    drawn = rng.zipf(1 / GROWTH, size=shape).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (drawn >> np.uint64(64 - WORDS.bit_length() + 1)).astype(np.uint32)


def open_data(folder: Path, labels: int) -> tuple[Any, Any, Any]:
    """Map what make_data wrote: the training split without its texts, tokens of points, tokens of labels."""
    from scipy.sparse import csr_matrix

    from megalabel.data.dataset import Split
    from megalabel.types import Tokens

    indptr = np.load(folder / "indptr.npy", mmap_mode="r")
    cols = np.memmap(folder / "cols.bin", dtype=np.int32, mode="r")
    ones = np.memmap(folder / "ones.bin", dtype=np.float32, mode="r")
    points = len(indptr) - 1
    targets = csr_matrix((ones, cols, indptr), shape=(points, labels), copy=False)
    targets.has_canonical_format = True  # rows are sorted, no label occurs twice
    tokens = np.memmap(folder / "tokens.bin", dtype=np.uint32, mode="r")
    queries = Tokens(tokens, np.load(folder / "offsets.npy", mmap_mode="r"))
    words = np.load(folder / "labels.npy", mmap_mode="r")
    texts = Tokens(words.reshape(-1), TEXT * np.arange(labels + 1))
    return Split(range(points), targets, range(points)), queries, texts


# ------------------------------------------------------------------------- steps


def measure(folder: Path, labels: int, kind: str, steps: int, ranks: int = 1) -> dict[str, Any]:
    """Run the steps elsewhere, and put the plan beside what they took."""
    given = json.dumps({"folder": str(folder), "labels": labels, "kind": kind, "steps": steps})
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    own = {"OMP_NUM_THREADS": "1", "MEGALABEL_PROGRESS": "0"}
    done = subprocess.run(
        [*command, __file__, "--child", given], env=os.environ | own, stdout=subprocess.PIPE, check=True
    )
    result = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    row = max(result, key=lambda each: each["peak_bytes"]) | {"labels": labels, "kind": kind, "ranks": ranks}
    return beside_plan(row)


def beside_plan(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with what is planned for it, and print it."""
    labels, kind, ranks = row["labels"], row["kind"], row["ranks"]
    row = row | {"planned_bytes": planned(kind, labels, row, ranks)}
    row["ratio"] = round(row["planned_bytes"] / row["peak_bytes"], 3)
    print(
        f"{labels:,} labels, {kind}, {ranks} ranks: {row['seconds_per_step']:.3f} s a step (processor "
        f"{row['cpu_seconds_per_step']:.3f}), {row['peak_bytes'] / 2**20:,.0f} MiB, planned "
        f"{row['planned_bytes'] / 2**20:,.0f}, ratio {row['ratio']:.2f}", flush=True,
    )  # fmt: skip
    return row


def planned(kind: str, labels: int, row: dict[str, Any], ranks: int) -> int:
    """Return the bytes that a plan gives the largest moment of a step, without what is mapped or not there."""
    from megalabel.plan import plan

    recipe, changes = KINDS[kind]
    result = plan(
        recipe, points=row["points"], labels=labels, labels_per_point=row["labels_per_point"], devices=ranks,
        query_tokens=1.3 * row["words_per_point"], label_tokens=1.3 * TEXT, changes=changes, device="cpu", memory=1e12,
    )  # fmt: skip
    moments = {name: parts for name, parts in result.memory.moments.items() if name in STEP}
    memory = replace(result.memory, moments=moments)  # nothing else happens here, nor leaves anything behind
    away = sum(part.bytes for part in memory.held if part.name in AWAY)
    return round(memory.peak(host=True)[1] - away)


def step(folder: str, labels: int, kind: str, steps: int) -> int:
    """Train some steps and print what they took: one step to warm up, where there are several."""
    import torch

    from megalabel.encoders import BagEncoder
    from megalabel.network.texts import TextTokens
    from megalabel.recipes import load_recipe
    from megalabel.recipes.build import build_network
    from megalabel.training.distributed import join
    from megalabel.training.loop import Loop

    torch.set_num_threads(1)
    recipe, changes = KINDS[kind]
    wanted = load_recipe(recipe, changes)
    split, queries, texts = open_data(Path(folder), labels)
    with join() as ranks, Watch(lambda: warm_up(wanted, ranks)) as watch:
        torch.manual_seed(wanted.seed)
        encoder = BagEncoder(None, dim=DIM, words=WORDS, bigrams=0, characters=0, seed=wanted.seed)
        network = build_network(wanted, encoder, labels, ranks)
        tokens = (TextTokens({network.default: part}) for part in (queries, texts))
        loop = Loop(wanted, network, split, *tokens)
        going = loop.run_epoch()
        losses = [next(going).loss] if steps > 1 else []
        begin, processor = time.perf_counter(), time.process_time()
        losses += [next(going).loss for _ in range(steps - len(losses))]
        timed = steps - (steps > 1)
        row = {
            "points": len(split),
            "labels_per_point": round(split.targets.nnz / len(split), 2),
            "words_per_point": round(len(queries.ids) / len(queries), 2),
            "steps": steps,
            "seconds_per_step": (time.perf_counter() - begin) / timed,
            "cpu_seconds_per_step": (time.process_time() - processor) / timed,
            "loss": [losses[0], losses[-1]],
        }
    print(json.dumps(row | {"peak_bytes": watch.peak - watch.begin}), flush=True)
    return 0


def warm_up(recipe: Any, ranks: Any) -> None:
    """Train a very small network for a step, so that the code of all libraries is there before the watch begins."""
    import megalabel as ml
    from megalabel.encoders import BagEncoder
    from megalabel.recipes.build import build_network
    from megalabel.training.loop import Loop
    from megalabel.training.phase import Texts

    data = ml.load(f"synthetic:points={2 * BATCH},labels=64,seed=1")
    encoder = BagEncoder(None, dim=DIM, words=1024, bigrams=0, characters=0)
    network = build_network(recipe, encoder, len(data.labels), ranks)
    texts = Texts.of(data, {network.default: encoder})
    next(Loop(recipe, network, data.train, texts.train, texts.labels).run_epoch())


class Watch(threading.Thread):
    """The most memory of its own, without mapped files, that this process holds, looked at a hundred times a second."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self.before = before
        self.peak = self.begin = 0
        self.over = threading.Event()

    def __enter__(self) -> Watch:
        self.before()
        self.begin = self.peak = anonymous()
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.join()

    def run(self) -> None:
        """Look, and look again."""
        while not self.over.wait(0.01):
            self.peak = max(self.peak, anonymous())


def anonymous() -> int:
    """Return the bytes this process holds that are no pages of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


if __name__ == "__main__":
    sys.exit(main())
