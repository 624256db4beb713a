"""Operations of an epoch, and bytes between devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from megalabel.cost import FLOAT
from megalabel.index.cost import search_cost

if TYPE_CHECKING:
    from megalabel.plan.workload import Workload

__all__ = ["Work", "work"]

_TRAINED = 3  # forward, and backward for weights and for inputs
_AGAIN = 1  # the second forward pass of the gradient cache
_CLUSTERED = 12  # times that clustering reads every vector on a level: about ten rounds, and the cut
_STATE = 20  # bytes per row that ranks exchange for one loss: maximum, sum in float64, slope, value


@dataclass(frozen=True)
class Work:
    """Operations over all devices, and bytes."""

    steps: int  # per epoch
    epochs: int
    encoder: float  # operations per epoch
    loss: float  # per epoch: products of queries and labels, and of the heads
    refresh: float  # per epoch, on average: clusters, negatives
    evaluate: float  # per epoch, on average
    sent: dict[str, float] = field(default_factory=dict)  # bytes that one device sends in a step, by what

    @property
    def flops(self) -> float:
        """Operations of an epoch."""
        return self.encoder + self.loss + self.refresh + self.evaluate

    def seconds(self, devices: int, flops: float, bandwidth: float | None) -> float:
        """Return the seconds of an epoch on devices that reach so many operations and bytes per second."""
        sending = self.steps * sum(self.sent.values()) / bandwidth if bandwidth and devices > 1 else 0.0
        return self.flops / (devices * flops) + sending


def work(load: Workload) -> Work:
    """Return the work of all stages, spread over the epochs of the last one."""
    *earlier, last = (_stage(stage) for stage in load.stages())
    return reduce(_add, earlier, last)


def _add(total: Work, stage: Work) -> Work:
    share = stage.epochs / total.epochs
    names = ("encoder", "loss", "refresh", "evaluate")
    return replace(total, **{name: getattr(total, name) + share * getattr(stage, name) for name in names})


def _stage(load: Workload) -> Work:
    training = load.recipe.training
    evaluations = math.ceil(training.epochs / training.evaluate_every)
    return Work(
        steps=load.steps,
        epochs=training.epochs,
        encoder=load.steps * _encoders(load),
        loss=load.steps * _losses(load),
        refresh=load.refreshes / training.epochs * _refresh(load),
        evaluate=_evaluation(load) * evaluations / training.epochs,
        sent=_sent(load) if load.devices > 1 else {},
    )


def _encoders(load: Workload) -> float:
    """Return the operations of the encoders in a step."""
    total = 0.0
    for encoder in load.encoders:
        labels = encoder.labels if encoder.trained else load.labels / (load.steps * load.recipe.training.epochs)
        for texts, items in ((encoder.queries, encoder.query_items), (labels, encoder.label_items)):
            times = _TRAINED + (_AGAIN if load.own(texts) > load.chunk else 0) if encoder.trained else 1
            total += times * texts * encoder.cost.flops(items)
    return total


def _losses(load: Workload) -> float:
    """Return the operations of heads and losses in a step."""
    total, positives = 0.0, load.batch * load.labels_per_point
    for head in load.trained_heads:
        texts = load.batch + (head.pool if head.text else 0)
        total += 2 * _TRAINED * texts * head.cost.matrices
        total += head.products(positives) * 2 * load.batch * head.width * head.dim
    return total


def _encode(load: Workload, *, queries: int, labels: int) -> float:
    """Return the operations of encoding texts once, without a gradient."""
    total = 0.0
    for encoder in load.encoders:
        total += queries * encoder.cost.flops(encoder.query_items) if encoder.queries else 0.0
        total += labels * encoder.cost.flops(encoder.label_items) if encoder.reads_labels else 0.0
    return total


def _refresh(load: Workload) -> float:
    """Return the operations of one refresh of clusters and negatives."""
    settings, dim = load.recipe.batching, load.mining_head.dim
    total = _encode(load, queries=load.rows, labels=load.labels if settings.mines else 0)
    if settings.clusters:
        size = settings.cluster_size(0, load.rows)  # at first: larger ones take fewer levels
        levels = math.log2(max(2.0, load.rows / size))
        total += levels * _CLUSTERED * 2 * load.rows * dim
    if settings.mining is not None:
        search = settings.mining.search
        cost = search_cost(search.kind, load.labels, dim, **search.options())
        total += 2 * dim * (cost.build + load.rows * cost.search)
    return total


def _evaluation(load: Workload) -> float:
    """Return the operations of one evaluation on validation rows."""
    texts = _encode(load, queries=load.validation, labels=load.labels)
    return texts + 2.0 * load.validation * load.searched


def _sent(load: Workload) -> dict[str, float]:
    """Return the bytes one device sends in a step, around a ring: n (W-1)/W to gather n, twice that to add n up."""
    share, heads = (load.devices - 1) / load.devices, load.trained_heads
    numbers = sum(head.width if head.listed else head.dim for head in heads)  # per query
    candidates = sum(3 * head.pool * head.dim for head in heads if head.listed)
    dense = sum(encoder.cost.dense for encoder in load.encoders if encoder.trained)
    matrices = sum(head.cost.matrices for head in heads if not head.frozen)
    tables = 0.0
    for encoder in load.encoders:
        rows, width = encoder.cost.table
        touched = load.devices * sum(encoder.cost.touched(side.text, side.texts) for side in load.sides(encoder))
        if encoder.trained:
            tables += touched * (width * FLOAT + 8) if touched <= rows else 2 * rows * width * FLOAT
    sent = {
        "query vectors gathered": share * load.batch * numbers * FLOAT,
        "row state": 2 * share * load.batch * _STATE * len(heads),
        "gradients of queries added up": 2 * share * load.batch * numbers * FLOAT,
        "label vectors of candidates": share * candidates * FLOAT,
        "gradients of the encoder added up": 2 * share * (dense + matrices) * FLOAT,
        "gradients of the feature table added up": share * tables,
    }
    return {name: size for name, size in sent.items() if size}
