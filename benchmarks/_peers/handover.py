"""What every peer script shares: it reads what it is given, is timed, and hands back ids and costs.

Runs inside the environment of a peer: numpy at most beside the standard library, and nothing of megalabel. The form of
a peer script is REQUEST (JSON: folder, settings, seed, threads, k) and OUT (JSON written at the end); the label ids
[Q, k], best first and filled up with -1, go to ids.npy in the folder.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Job:
    """One run of a peer."""

    folder: Path  # of the features or texts
    scratch: Path  # a folder of its own to write to
    settings: dict[str, Any]
    seed: int
    threads: int
    k: int

    def matrix(self, name: str) -> Any:
        """Return train, test or targets as a csr matrix of float32."""
        from scipy import sparse

        matrix = sparse.csr_matrix(sparse.load_npz(self.folder / f"{name}.npz"), dtype=np.float32)
        matrix.sort_indices()
        return matrix


def run(
    prepare: Callable[[Job], Any],
    fit: Callable[[Job, Any], Any],
    predict: Callable[[Job, Any, Any], np.ndarray],
    parameters: Callable[[Job, Any], int | None],
    packages: Sequence[str],
) -> None:
    """Prepare (not timed), fit, predict; write ids, seconds, memory, parameters and versions."""
    request, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    folder, scratch = Path(request.pop("folder")), Path(request.pop("scratch"))
    job = Job(folder=folder, scratch=scratch, **request)
    given = prepare(job)
    begin, used = time.perf_counter(), time.process_time()
    model = fit(job, given)
    middle, used_by_fit = time.perf_counter(), time.process_time() - used
    ids = predict(job, model, given)
    end = time.perf_counter()
    peak = peak_mb()
    np.save(scratch / "ids.npy", np.asarray(ids, dtype=np.int64), allow_pickle=False)
    result = {
        "fit_seconds": middle - begin,
        "fit_cpu_seconds": used_by_fit,
        "predict_seconds": end - middle,
        "peak_mb": peak,
        "parameters": parameters(job, model),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }
    out.write_text(json.dumps(result), encoding="utf-8")


def padded(rankings: Iterable[Sequence[int]], k: int) -> np.ndarray:
    """Return rankings as ids [Q, k]: cut to k, short ones filled up with -1."""
    rows = [list(row)[:k] for row in rankings]
    ids = np.full((len(rows), k), -1, dtype=np.int64)
    for row, result in zip(ids, rows, strict=True):
        row[: len(result)] = result
    return ids


def best(scores: Any, k: int) -> np.ndarray:
    """Return the k best columns of each row of a csr matrix of scores, equal ones by column."""
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    place = np.arange(len(rows)) - scores.indptr[rows]
    keep = place < k
    ids = np.full((scores.shape[0], k), -1, dtype=np.int64)
    ids[rows[keep], place[keep]] = scores.indices[order][keep]
    return ids


def peak_mb() -> float:
    """Return the largest resident memory of this process in MB (10^6 bytes).

    Taken from the kernel's own record of this address space: ru_maxrss of a child starts
    at the peak of the process that started it.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    kib = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if kib is None else kib) * 1024 / 1e6
