"""fastText: a mean of word vectors and one classifier per label, all trained together."""

from __future__ import annotations

from typing import Any

import fasttext
import numpy as np
from handover import Job, padded, run


def prepare(job: Job) -> list[str]:
    """Read the test texts; training texts are read by the library."""
    return (job.folder / "test.txt").read_text(encoding="utf-8").split("\n")[:-1]


def fit(job: Job, given: list[str]) -> Any:
    """Train on texts and labels."""
    path = str(job.folder / "train.txt")
    return fasttext.train_supervised(path, thread=job.threads, seed=job.seed, verbose=0, **job.settings["train"])


def predict(job: Job, model: Any, given: list[str]) -> np.ndarray:
    """Return the most probable labels."""
    names, _ = model.predict(given, k=job.k)
    return padded(([int(name.removeprefix("__label__")) for name in row] for row in names), job.k)


def parameters(job: Job, model: Any) -> int:
    """Count the word, n-gram and label vectors."""
    return int(model.get_input_matrix().size + model.get_output_matrix().size)


if __name__ == "__main__":
    run(prepare, fit, predict, parameters, ("fasttext-numpy2", "numpy"))
