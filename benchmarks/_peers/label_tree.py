"""A probabilistic label tree (PLT) of napkinXC: logistic regression at every node, exact search."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from handover import Job, padded, run
from napkinxc.models import PLT


def prepare(job: Job) -> dict[str, Any]:
    """Read the features, and the targets as lists."""
    targets = job.matrix("targets")
    rows = [targets.indices[slice(*targets.indptr[row : row + 2])].tolist() for row in range(targets.shape[0])]
    return {"train": job.matrix("train"), "test": job.matrix("test"), "targets": rows}


def fit(job: Job, given: dict[str, Any]) -> PLT:
    """Train with the library's defaults."""
    model = PLT(str(job.scratch / "model"), threads=job.threads, seed=job.seed)
    model.fit(given["train"], given["targets"])
    model.load()
    return model


def predict(job: Job, model: PLT, given: dict[str, Any]) -> np.ndarray:
    """Return the most probable labels."""
    return padded(model.predict(given["test"], top_k=job.k), job.k)


def parameters(job: Job, model: PLT) -> int | None:
    """Count the weights in the saved file, or nothing if it is not of the form this version writes."""
    return weights(job.scratch / "model" / "weights.bin")


def weights(path: Path) -> int | None:
    """Walk over the classifiers of a weights file and add up their weights other than zero."""
    content, at, total = path.read_bytes(), 4, 0
    for _ in range(struct.unpack_from("<i", content)[0]):
        classes, _, _ = struct.unpack_from("<iii", content, at)
        at += 12
        if classes > 1:
            size, kept, _, _, is_sparse = struct.unpack_from("<QQQQ?", content, at)
            at += 34 + (8 * kept if is_sparse else 4 * size)
            total += kept
    return total if at == len(content) else None


if __name__ == "__main__":
    run(prepare, fit, predict, parameters, ("napkinxc", "numpy", "scipy"))
