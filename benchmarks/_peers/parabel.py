"""Parabel as omikuji builds it: three balanced trees of linear classifiers."""

from __future__ import annotations

from typing import Any

import cbor2
import numpy as np
import omikuji
from handover import Job, padded, run
from scipy import sparse


def prepare(job: Job) -> dict[str, Any]:
    """Write the training rows as omikuji reads them; a row without features gets a constant one."""
    train, test = job.matrix("train"), filled(job.matrix("test"))
    write(job.scratch / "train.txt", filled(train), job.matrix("targets"))
    return {"test": test}


def filled(features: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return one more column, 1 in the rows that are otherwise empty."""
    empty = (np.diff(features.indptr) == 0).astype(np.float32)
    return sparse.hstack([features, sparse.csr_matrix(empty[:, None])], format="csr", dtype=np.float32)


def write(path: Any, features: sparse.csr_matrix, targets: sparse.csr_matrix) -> None:
    """Write rows, features, labels; then labels and index:value pairs of each row."""
    with path.open("w", encoding="ascii") as out:
        out.write(f"{features.shape[0]} {features.shape[1]} {targets.shape[1]}\n")
        for row in range(features.shape[0]):
            here, there = slice(*features.indptr[row : row + 2]), slice(*targets.indptr[row : row + 2])
            labels = ",".join(map(str, targets.indices[there].tolist()))
            cells = zip(features.indices[here].tolist(), features.data[here].tolist(), strict=True)
            out.write(f"{labels} {' '.join(f'{index}:{value:.7g}' for index, value in cells)}\n")


def fit(job: Job, given: dict[str, Any]) -> omikuji.Model:
    """Train with the library's defaults, which are Parabel's; the library takes no seed."""
    path = str(job.scratch / "train.txt")
    return omikuji.Model.train_on_data(path, omikuji.Model.default_hyper_param(), job.threads)


def predict(job: Job, model: omikuji.Model, given: dict[str, Any]) -> np.ndarray:
    """Search the trees by beam, row by row."""
    test = given["test"]
    model.init_prediction_thread_pool(job.threads)
    rankings = []
    for row in range(test.shape[0]):
        here = slice(*test.indptr[row : row + 2])
        cells = list(zip(test.indices[here].tolist(), test.data[here].tolist(), strict=True))
        rankings.append([label for label, _ in model.predict(cells, top_k=job.k)])
    return padded(rankings, job.k)


def parameters(job: Job, model: omikuji.Model) -> int:
    """Count the weights other than zero in the saved trees."""
    model.save(str(job.scratch / "model"))
    total = 0
    for path in sorted((job.scratch / "model").glob("tree*.cbor")):
        with path.open("rb") as stream:
            total += weights(cbor2.load(stream))
    return total


def weights(node: Any) -> int:
    """Count the numbers under "data" in a tree, zeros left out."""
    if isinstance(node, dict):
        here = node.get("data")
        own = sum(value != 0 for value in here) if isinstance(here, list) else 0
        return own + sum(weights(value) for key, value in node.items() if key != "data")
    return sum(weights(value) for value in node) if isinstance(node, list) else 0


if __name__ == "__main__":
    run(prepare, fit, predict, parameters, ("omikuji", "numpy", "scipy"))
