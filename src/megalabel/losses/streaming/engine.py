"""One computation: passes over the blocks for the row state, then the products that give the gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from megalabel.losses.streaming.blocks import Blocks
from megalabel.losses.streaming.streams import Scratch, wide

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.losses.streaming.blocks import Block, Plan, Problem
    from megalabel.ranks import Ranks
    from megalabel.types import Stream, StreamedLoss

GATHER = 4096  # cells whose vectors are gathered at once


@dataclass(frozen=True)
class Needs:
    """Which gradients are needed."""

    queries: bool
    labels: bool
    bias: bool

    def any(self) -> bool:
        """Return whether any gradient is needed."""
        return self.queries or self.labels or self.bias


@dataclass(frozen=True)
class Outcome:
    """Value and gradients of one run; ``queries`` is the gradient for the queries divided by the temperature."""

    value: Tensor
    queries: Tensor | None
    labels: Tensor | None
    bias: Tensor | None


def run(
    terms: list[tuple[float, StreamedLoss]],
    problem: Problem,
    needs: Needs,
    plan: Plan,
    ranks: Ranks,
    skip: float | None,
) -> Outcome:
    """Compute the weighted sum of row losses and its gradients; weights include the reduction over rows."""
    problem = replace(problem, positives=replace(problem.positives, scores=_positive_scores(problem)))
    streams = [loss.begin(problem.positives, ranks) for _, loss in terms]
    weights = [weight for weight, _ in terms]
    dense = [(weight, stream) for weight, stream in zip(weights, streams, strict=True) if not stream.sparse]
    blocks = Blocks(problem, plan, keep=any(not stream.separable for _, stream in dense))
    at_once = needs.any() and all(stream.separable for stream in streams)
    gradients = Gradients(problem, needs, dense, skip)
    active = streams
    while active:
        for block in blocks.walk(last=at_once):
            for stream in active:
                stream.update(block.scores, block.start)
            if at_once:
                gradients.add(block)
        active = [stream for stream in active if stream.more()]
    value = problem.queries.new_zeros((), dtype=wide(problem.queries))
    for weight, stream in zip(weights, streams, strict=True):
        value = value + weight * stream.finish().to(value.dtype).sum()
    if needs.any():
        if dense and not at_once:
            for block in blocks.walk(last=True):
                gradients.add(block)
        for weight, stream in zip(weights, streams, strict=True):
            if stream.sparse:
                gradients.add_cells(weight, *stream.sparse_gradient())
                positives = problem.positives
                gradients.add_cells(weight, positives.rows, positives.cols, stream.positive_gradient())
    return gradients.outcome(value.to(problem.queries.dtype))


def _positive_scores(problem: Problem) -> Tensor:
    """Score the positive cells one by one, in the type of sums."""
    rows, cols = problem.positives.rows, problem.positives.cols
    scores = problem.queries.new_empty(rows.shape)
    for first in range(0, rows.numel(), GATHER):
        part = slice(first, first + GATHER)
        left = problem.queries.index_select(0, rows[part])
        right = problem.labels.index_select(0, cols[part]).to(left.dtype)
        torch.sum(left.mul_(right), 1, out=scores[part])
    return scores if problem.bias is None else scores + problem.bias.to(scores).index_select(0, cols)


class Gradients:
    """Adds up gradients block by block.

    With a single dense term its weight is applied to the query side of the products, so that
    the block of gradients needs no further pass.
    """

    def __init__(self, problem: Problem, needs: Needs, dense: list[tuple[float, Stream]], skip: float | None) -> None:
        self._problem, self._needs, self._skip, self._dense = problem, needs, skip, dense
        self._scale = dense[0][0] if len(dense) == 1 else 1.0
        self._same = problem.kind is problem.queries.dtype is problem.labels.dtype
        self._left = (
            (problem.queries * self._scale).to(problem.kind) if self._same else problem.queries.to(problem.kind)
        )
        self._spare, self._total = Scratch(), Scratch()
        self._positive: Tensor | None = None
        self._queries = torch.zeros_like(problem.queries) if needs.queries else None
        # with a dense term every row is written by some block
        make = torch.empty_like if dense and skip is None else torch.zeros_like
        self._labels = make(problem.labels) if needs.labels else None
        self._bias = problem.queries.new_zeros(problem.labels.shape[0]) if needs.bias else None

    def add(self, block: Block) -> None:
        """Add the gradient of a block to both sides; overwrites its scores."""
        gradient = self._of_scores(block)
        if (
            self._skip is not None
            and gradient.numel()
            and float(torch.linalg.vector_norm(gradient, torch.inf)) <= self._skip
        ):
            return
        end = block.start + block.labels.shape[0]
        if self._bias is not None:
            self._bias[block.start : end] = gradient.sum(0) * self._scale
        narrow = gradient.to(self._problem.kind)
        if self._queries is not None:
            if self._same:
                self._queries.addmm_(narrow, block.labels)
            else:
                self._queries.add_(narrow @ block.labels)
        if self._labels is not None:
            if self._same:
                torch.mm(narrow.T, self._left, out=self._labels[block.start : end])
            else:
                self._labels[block.start : end] = (narrow.T @ self._left).to(self._problem.queries.dtype) * self._scale

    def add_cells(self, weight: float, rows: Tensor, cols: Tensor, values: Tensor) -> None:
        """Add the gradient of single cells to both sides."""
        queries, labels = self._problem.queries, self._problem.labels
        values = values * weight
        if self._bias is not None:
            self._bias.index_add_(0, cols, values)
        for first in range(0, rows.numel(), GATHER):
            part = slice(first, first + GATHER)
            share = values[part, None]
            if self._queries is not None:
                right = labels.index_select(0, cols[part]).to(queries.dtype)
                self._queries.index_add_(0, rows[part], right.mul_(share / self._scale))
            if self._labels is not None:
                left = queries.index_select(0, rows[part]).mul_(share)
                self._labels.index_add_(0, cols[part], left.to(labels.dtype))

    def outcome(self, value: Tensor) -> Outcome:
        """Return the value with the gradients."""
        queries = None if self._queries is None else self._queries.mul_(self._scale)
        return Outcome(value, queries, self._labels, self._bias)

    def _of_scores(self, block: Block) -> Tensor:
        if self._positive is None:
            parts = [stream.positive_gradient() * (weight / self._scale) for weight, stream in self._dense]
            self._positive = torch.stack(parts).sum(0)
        if len(self._dense) == 1:
            total = self._dense[0][1].block_gradient(block.scores)
        else:
            total = self._total.like(block.scores).zero_()
            for weight, stream in self._dense:
                copy = self._spare.like(block.scores).copy_(block.scores)
                total.add_(stream.block_gradient(copy), alpha=weight)
        total.view(-1).index_copy_(0, block.places, self._positive[block.first : block.last])
        return total
