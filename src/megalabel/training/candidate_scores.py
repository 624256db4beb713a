"""Scores of each query's own candidates, with repeatable gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

__all__ = ["score_candidates"]

_QUERIES = 8  # whose candidate vectors are held at once


def score_candidates(queries: Tensor, vectors: Tensor, places: Tensor) -> Tensor:
    r"""Return s [B, S], :math:`s_{ij} = \langle q_i, v_{p_{ij}} \rangle`, without ever holding [B, S, d].

    Args:
        queries: q [B, d].
        vectors: v [P, d] of all labels that are a candidate of some query.
        places: p [B, S], rows of ``vectors``; a row may be named any number of times.

    Gradients are bags of rows, added up in the same order in every run with the same number of threads.

    >>> score_candidates(torch.tensor([[1.0, 2.0]]), torch.eye(2), torch.tensor([[1, 0, 1]])).tolist()
    [[2.0, 1.0, 2.0]]
    """
    scores: Tensor = _Scores.apply(queries, vectors, places)  # type: ignore[no-untyped-call]
    return scores


class _Scores(Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, vectors: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(queries, vectors, places)
        b, width = places.shape
        scores = queries.new_empty(b, width, 1)
        for start in range(0, b, _QUERIES):
            block = slice(start, start + _QUERIES)
            columns = queries[block].unsqueeze(2)
            picked = vectors.index_select(0, places[block].flatten()).view(len(columns), width, columns.shape[1])
            torch.bmm(picked, columns, out=scores[block])
        return scores.squeeze(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        queries, vectors, places = ctx.saved_tensors
        flat, weights = places.flatten(), gradient.flatten()
        starts = torch.arange(len(places) + 1, device=flat.device) * places.shape[1]
        of_queries = _bags(flat, vectors, starts, weights)
        order = torch.argsort(flat, stable=True)  # cells by label
        counts = torch.bincount(flat, minlength=len(vectors))
        rows = order.div(max(1, places.shape[1]), rounding_mode="floor")
        of_vectors = _bags(rows, queries, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), weights[order])
        return of_queries, of_vectors, None


def _bags(rows: Tensor, table: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sums of table rows, one for each stretch between two offsets."""
    sums: Tensor = embedding_bag(
        rows, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights.to(table.dtype)
    )
    return sums
