"""XR-Linear of libpecos: a tree of linear classifiers over clustered labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from handover import Job, best, run
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


def prepare(job: Job) -> dict[str, Any]:
    """Read features and targets."""
    return {name: job.matrix(name) for name in ("train", "test", "targets")}


def fit(job: Job, given: dict[str, Any]) -> XLinearModel:
    """Cluster the labels by their points and train the tree.

    Soft targets count by their value: ``soft: weights`` makes it the cost of a positive in
    the last layer, ``soft: {above: x}`` keeps those above x as plain positives.
    """
    features, soft = given["train"], given["targets"]
    how = job.settings.get("soft")
    if isinstance(how, dict):
        soft.data[soft.data <= how["above"]] = 0
        soft.eliminate_zeros()
    plain = soft.copy()
    plain.data = np.ones_like(plain.data)
    targets = plain.tocsc()
    by_points = LabelEmbeddingFactory.create(plain, features, method="pifa")
    chain = Indexer.gen(by_points, indexer_type="hierarchicalkmeans", seed=job.seed, threads=job.threads)
    costs = {"R": soft.tocsc(), "rel_mode": "ranker-only"} if how == "weights" else {}
    return XLinearModel.train(features, targets, C=chain, threads=job.threads, **costs, **job.settings.get("train", {}))


def predict(job: Job, model: XLinearModel, given: dict[str, Any]) -> np.ndarray:
    """Search the tree by beam."""
    settings = job.settings.get("predict", {})
    return best(model.predict(given["test"], only_topk=job.k, threads=job.threads, **settings).tocsr(), job.k)


def parameters(job: Job, model: XLinearModel) -> int:
    """Count the weights that were kept."""
    return int(sum(layer.W.nnz for layer in model.model.model_chain))


if __name__ == "__main__":
    run(prepare, fit, predict, parameters, ("libpecos", "numpy", "scipy"))
