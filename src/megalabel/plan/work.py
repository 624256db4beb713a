"""Operations of an epoch and bytes between devices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from megalabel.plan.products import products
from megalabel.plan.result import Work
from megalabel.plan.tensor import FLOAT

if TYPE_CHECKING:
    from megalabel.batching.settings import SearchSettings
    from megalabel.plan.case import Case, HeadSize

__all__ = ["work"]

_TRAINED = 3  # forward, and backward for weights and for inputs
_AGAIN = 1  # the second forward pass of the gradient cache
_CLUSTERED = 12  # times that clustering looks at every vector on a level: ten rounds or so, and the cut
_STATE = 20  # bytes a row that ranks exchange for one loss: maximum, sum in float64, slope, value


def work(case: Case) -> Work:
    """Return the operations of an epoch, over all devices, and what one device sends in a step."""
    training = case.recipe.training
    refreshes = case.refreshes / training.epochs
    return Work(
        steps=case.steps,
        epochs=training.epochs,
        encoder=case.steps * _encoder(case),
        loss=case.steps * _loss(case),
        refresh=refreshes * _refresh(case),
        evaluate=_evaluation(case) * math.ceil(training.epochs / training.evaluate_every) / training.epochs,
        sent=_sent(case) if case.devices > 1 else {},
    )


def _encoder(case: Case) -> float:
    """Return the operations of the encoder in a step."""
    total = 0.0
    sides = [(case.batch, case.own_batch, case.query_items)]
    if case.reads:
        sides.append((case.pool, case.own_pool, case.label_items))
    for texts, own, items in sides:
        times = _TRAINED + (_AGAIN if own > case.chunk else 0) if case.learns else 1
        total += times * texts * case.encoder.flops(items)
    return total


def _loss(case: Case) -> float:
    """Return the operations of heads and losses in a step."""
    total = 0.0
    for head in case.heads:
        if head.trained:
            texts = case.batch + (case.pool if head.text else 0)
            total += 2 * _TRAINED * texts * head.matrices(case.encoder.dim)
            total += _products(case, head) * 2 * case.batch * case.width * head.dim
    return total


def _products(case: Case, head: HeadSize) -> float:
    """Return the products of queries and labels: in a symmetric loss, labels with a positive are anchors as well."""
    _, each = products(head)
    if case.recipe.batching.labels == "candidates":
        return 3
    anchors = min(case.pool, case.batch * case.sizes.labels_per_point)
    return each + (
        0 if head.settings.loss is None or head.settings.loss.symmetric is None else each * anchors / case.pool
    )


def _refresh(case: Case) -> float:
    """Return the operations of making clusters and negatives once."""
    settings, dim, labels = case.recipe.batching, case.mining.dim, case.sizes.labels
    total = case.rows * case.encoder.flops(case.query_items)
    if settings.clusters:
        levels = math.log2(max(2.0, case.rows / case.batch))
        total += levels * _CLUSTERED * 2 * case.rows * dim
    if settings.mining is not None:
        total += labels * case.encoder.flops(case.label_items) if case.reads else 0.0
        total += _search(case, settings.mining.search, dim)
    return total


def _search(case: Case, search: SearchSettings, dim: int) -> float:
    """Return the operations of searching all rows once, with the build of the index."""
    labels, options = case.sizes.labels, search.options()
    if search.kind == "ivf":
        lists = options.get("nlist", round(4 * math.sqrt(labels)))
        probed = options.get("nprobe", max(8, lists // 16))
        return 2 * dim * (labels * lists + case.rows * (lists + labels * min(1.0, probed / lists)))
    if search.kind == "hnsw":
        build, visit = options.get("ef_construction", 100), options.get("ef_search", 128)
        return 2 * dim * options.get("M", 16) * (labels * build + case.rows * visit)
    return 2.0 * dim * labels * case.rows


def _evaluation(case: Case) -> float:
    """Return the operations of one evaluation on validation rows."""
    texts = case.watched * case.encoder.flops(case.query_items)
    texts += case.sizes.labels * case.encoder.flops(case.label_items) if case.reads else 0.0
    return texts + 2.0 * case.watched * case.sizes.labels * case.total_dim


def _sent(case: Case) -> dict[str, float]:
    """Return the bytes one device sends in a step, around a ring: n (W-1)/W to gather n, twice that to add n up."""
    share = (case.devices - 1) / case.devices
    trained = [head for head in case.heads if head.trained]
    dims, vectors = sum(head.dim for head in trained), 0.0
    if case.recipe.batching.labels == "candidates":
        vectors, dims = 3 * share * case.pool * dims * FLOAT, case.width * len(trained)
    matrices = sum(head.matrices(case.encoder.dim) for head in trained)
    rows, width = case.encoder.table
    touched = case.devices * (case.encoder.touched(case.sizes.query, case.own_batch))
    touched += case.devices * case.encoder.touched(case.sizes.label, case.own_pool) if case.reads else 0.0
    table = share * touched * (width * FLOAT + 8) if touched <= rows else 2 * share * rows * width * FLOAT
    found = {
        "query vectors gathered": share * case.batch * dims * FLOAT,
        "row state": 2 * share * case.batch * _STATE * len(trained),
        "gradients of queries added up": 2 * share * case.batch * dims * FLOAT,
        "label vectors of candidates": vectors,
        "gradients of the encoder added up": 2 * share * (case.encoder.dense * case.learns + matrices) * FLOAT,
        "gradients of the feature table added up": table * case.learns,
    }
    return {name: size for name, size in found.items() if size}
