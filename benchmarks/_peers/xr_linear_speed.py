"""How fast XR-Linear answers, from the text on: TF-IDF of words and pairs, then the tree.

Run inside its environment: python xr_linear_speed.py REQUEST OUT, where REQUEST is JSON with the folder that holds
texts.json and targets.npz, the beam, the labels per text, and the numbers of queries and of texts in a batch.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer


def main() -> None:
    """Fit on the train texts, then time test texts one by one and in a batch."""
    request = json.loads(sys.argv[1])
    folder = Path(request["folder"])
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    targets = sparse.csr_matrix(sparse.load_npz(folder / "targets.npz"), dtype=np.float32)
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32)
    features = words.fit_transform(texts["train"])
    begin = time.process_time()
    by_points = LabelEmbeddingFactory.create(targets, features, method="pifa")
    chain = Indexer.gen(by_points, indexer_type="hierarchicalkmeans", seed=0, threads=1)
    model = XLinearModel.train(features, targets.tocsc(), C=chain, threads=1)
    fit = time.process_time() - begin

    def answer(some: list[str]) -> float:
        begin = time.process_time()
        rows = words.transform(some)
        rows.sort_indices()
        model.predict(rows, beam_size=request["beam"], only_topk=request["k"], threads=1)
        return time.process_time() - begin

    test = texts["test"]
    answer(test[: request["batch"]])
    single = [answer([text]) for text in test[: request["queries"]]]
    batch = test[: request["batch"]]
    seconds = min(answer(batch) for _ in range(3))
    result = {
        "query_ms": 1e3 * median(single), "texts_per_second": len(batch) / seconds, "fit_cpu_seconds": fit,
        "versions": {name: version(name) for name in ("libpecos", "scikit-learn")},
    }  # fmt: skip
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
