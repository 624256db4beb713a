"""What the peers are given: TF-IDF matrices, or texts in fastText's form, of one data set.

Run by benchmarks/quality.py: python features.py REQUEST OUT, where REQUEST is JSON with the data set, what to make and
the folder to make it in. Peers train on train and val together; Gandalf rows, where asked for, are made from both.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

WORD = re.compile(r"\w+")


def make(request: dict[str, Any], folder: Path) -> dict[str, float]:
    """Write the files a peer starts from, and return what it took to make them of texts."""
    import megalabel as ml
    from megalabel.augment import gandalf

    data = ml.load(request["data"]).refit()
    wanted = request["features"]
    start, used = time.perf_counter(), time.process_time()
    if "gandalf" in wanted:
        options = {"max_targets" if name == "most" else name: value for name, value in wanted["gandalf"].items()}
        data = gandalf(data, known="ignore", **options)  # of known texts too, as published
    targets = data.train.without(data.train.filter).targets.astype(np.float32)
    if wanted["kind"] == "texts":
        write_texts(folder, data.train.texts, targets, data.test.texts)
        middle, used_for_train = time.perf_counter(), time.process_time() - used
        return {"train_seconds": middle - start, "train_cpu_seconds": used_for_train, "test_seconds": 0.0}
    vectorisers = build(wanted["kind"])
    train = joined([part.fit_transform(data.train.texts) for part in vectorisers])
    middle, used_for_train = time.perf_counter(), time.process_time() - used
    test = joined([part.transform(data.test.texts) for part in vectorisers])
    end = time.perf_counter()
    for name, matrix in {"train": train, "test": test, "targets": targets}.items():
        sparse.save_npz(folder / f"{name}.npz", matrix, compressed=False)
    return {"train_seconds": middle - start, "train_cpu_seconds": used_for_train, "test_seconds": end - middle}


def build(kind: str) -> list[Any]:
    """Return the vectorisers of a kind: words, or words and characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    common = {"min_df": 2, "sublinear_tf": True, "dtype": np.float32}
    words = TfidfVectorizer(ngram_range=(1, 2), **common)
    if kind == "words":
        return [words]
    if kind == "words+characters":
        return [words, TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), **common)]
    raise ValueError(f"no features {kind!r}")


def joined(parts: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
    """Put parts side by side, every row of unit length."""
    if len(parts) == 1:
        return sparse.csr_matrix(parts[0])
    whole = sparse.hstack(parts, format="csr", dtype=np.float32)
    length = np.sqrt(whole.multiply(whole).sum(axis=1)).A1
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(length, 1e-12), dtype=np.float32) @ whole)


def write_texts(folder: Path, train: Sequence[str], targets: sparse.csr_matrix, test: Sequence[str]) -> None:
    """Write one line per text: its labels, for training, and its words in lower case."""
    with (folder / "train.txt").open("w", encoding="utf-8") as out:
        for row, text in enumerate(train):
            ids = targets.indices[targets.indptr[row] : targets.indptr[row + 1]]
            out.write(" ".join([*(f"__label__{label}" for label in ids.tolist()), *words_of(text)]) + "\n")
    with (folder / "test.txt").open("w", encoding="utf-8") as out:
        out.writelines(" ".join(words_of(text)) + "\n" for text in test)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD.findall(text.lower())


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    Path(sys.argv[2]).write_text(json.dumps(make(asked, Path(asked["folder"]))), encoding="utf-8")
