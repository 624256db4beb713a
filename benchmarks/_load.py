"""What it takes to load a large set from JSON lines: memory of one process, and of two that share what is mapped.

Anonymous memory (RssAnon) is what a process holds for itself. Files are counted by PSS: a page that two processes map
counts half for each, so that the sum of both is what the machine holds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TESTS = 10_000
BLOCK = 16_384


def write_folder(folder: Path, split: Any, queries: Any, words: np.ndarray) -> int:
    """Write a set of tokens as the JSON lines of a data folder, a word for each token; return their bytes."""
    folder.mkdir()
    with (folder / "lbl.jsonl").open("w") as out:
        for start in range(0, len(words), BLOCK):
            rows = enumerate(words[start : start + BLOCK].tolist(), start)
            out.writelines(f'{{"uid":"lbl-{label}","text":"{_text(row)}"}}\n' for label, row in rows)
    with (folder / "trn.jsonl").open("w") as train, (folder / "tst.jsonl").open("w") as test:
        for row, (text, labels) in enumerate(_points(split, queries)):
            out = test if row < TESTS else train
            out.write(f'{{"uid":"p-{row}","text":"{text}","labels":{labels}}}\n')
    return sum(path.stat().st_size for path in folder.iterdir())


def _points(split: Any, queries: Any) -> Iterator[tuple[str, list[int]]]:
    indptr, offsets = split.targets.indptr, queries.offsets
    for start in range(0, len(split), BLOCK):
        stop = min(start + BLOCK, len(split))
        tokens = queries.ids[offsets[start] : offsets[stop]].tolist()
        labels = split.targets.indices[indptr[start] : indptr[stop]].tolist()
        for row in range(start, stop):
            own = tokens[offsets[row] - offsets[start] : offsets[row + 1] - offsets[start]]
            yield _text(own), labels[indptr[row] - indptr[start] : indptr[row + 1] - indptr[start]]


def _text(tokens: list[int]) -> str:
    return " ".join([f"w{token:x}" for token in tokens])


def measure_load(folder: Path, ranks: int, script: str) -> dict[str, Any]:
    """Load the folder in so many processes at once, with a cache of their own; return what each of them took."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as cache:
        own = {"OMP_NUM_THREADS": "1", "MEGALABEL_PROGRESS": "0", "MEGALABEL_CACHE": cache}
        given = json.dumps({"load": str(folder), "ranks": ranks})
        command = [sys.executable, script, "--child", given]
        started = [
            subprocess.Popen(command, env=os.environ | own | {"RANK": str(rank)}, stdout=subprocess.PIPE)
            for rank in range(ranks)
        ]
        found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
        held = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
    assert len({part["mapped"] for part in found}) == 1, "both map the same folders"
    return {"ranks": ranks, "each": found, "cache_bytes": held}


def load(folder: str, ranks: int, watch: Callable[[], Any], anonymous: Callable[[], int]) -> int:
    """Load a set, hold rows out of it, read all of it once, and print what each took."""
    import megalabel as ml
    from megalabel.data.hold_out import hold_out
    from megalabel.training.run_folder import fingerprint

    row: dict[str, Any] = {"libraries_bytes": anonymous()}
    begin = time.process_time()
    with watch() as seen:
        data = ml.load(folder)
    row |= {"load_peak_bytes": seen.peak, "load_bytes": anonymous(), "load_cpu_seconds": time.process_time() - begin}
    begin = time.process_time()
    with watch() as seen:
        held = hold_out(data)
        fingerprint(held)
    row |= {"hold_out_peak_bytes": seen.peak, "hold_out_cpu_seconds": time.process_time() - begin}
    parts = [data.train.texts, data.train.uids, data.labels.texts, held.train.texts]
    row |= {"points": len(data.train), "pairs": data.train.targets.nnz, "labels": len(data.labels)}
    row["mapped"] = " ".join(part.pack().folder.name for part in parts[:3])
    ready = Path(os.environ["MEGALABEL_CACHE"], f"ready-{os.environ['RANK']}")
    ready.touch()
    while not all(ready.with_name(f"ready-{rank}").exists() for rank in range(ranks)):
        time.sleep(0.1)
    for part in parts:  # both read all of it, while the other one has it
        sum(map(len, part))
    int(data.train.targets.indices.max())
    ready.with_suffix(".read").touch()
    while not all(ready.with_name(f"ready-{rank}.read").exists() for rank in range(ranks)):
        time.sleep(0.1)
    row |= {"bytes": anonymous(), **_shares()}
    ready.with_suffix(".seen").touch()
    while not all(ready.with_name(f"ready-{rank}.seen").exists() for rank in range(ranks)):
        time.sleep(0.1)  # stay until the other one has counted
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(row), flush=True)
    return 0


def _shares() -> dict[str, int]:
    """Return the bytes of mapped files of the cache: those resident here, and the share of them that counts for us."""
    found = {"Rss": 0, "Pss": 0}
    ours = False
    cache = os.environ["MEGALABEL_CACHE"]
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in found and ours:
            found[name] += int(rest.split()[0]) * 1024
        elif "-" in name.split(" ")[0] and " " in name:
            ours = cache in line
    return {"mapped_bytes": found["Rss"], "mapped_share_bytes": found["Pss"]}
