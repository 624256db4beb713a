"""Gradients before a step: rows listed once, summed over ranks, clipped by their joint norm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.errors import SettingError
from megalabel.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch.nn import Parameter

__all__ = ["clip_gradients", "distinct_rows", "sum_gradients"]

_BUCKET = 1 << 23  # numbers sent at a time
_NONE, _DENSE, _SPARSE = range(3)


def distinct_rows(gradient: Tensor) -> Tensor:
    """Return a gradient that is sparse in the rows with every row once, in ascending order.

    ``coalesce`` sorts and copies every gradient that is not marked as coalesced, and torch loses the mark when a
    gradient becomes ``.grad``; rows that are already ascending are returned without a copy.

    >>> gradient = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 3), (4, 3), check_invariants=True)
    >>> rows = distinct_rows(gradient)
    >>> gradient.is_coalesced(), rows.is_coalesced(), rows.values().data_ptr() == gradient._values().data_ptr()
    (False, True, True)
    """
    if gradient.is_coalesced() or gradient.sparse_dim() != 1:
        return gradient.coalesce()
    indices, values = gradient._indices(), gradient._values()
    if not bool((indices[0, 1:] > indices[0, :-1]).all()):
        return gradient.coalesce()
    return torch.sparse_coo_tensor(
        indices, values, gradient.shape, is_coalesced=True, check_invariants=False, dtype=gradient.dtype
    )


@torch.no_grad()
def clip_gradients(
    parameters: Iterable[Tensor], max_norm: float, *, sharded: Iterable[Tensor] = (), ranks: Ranks = ALONE
) -> float:
    """Scale all gradients in place so that their joint Euclidean norm is at most ``max_norm``.

    ``sharded`` are the parameters whose rows are split over the ranks: their norm is that of the rows
    of all ranks. Returns the norm before clipping. Sparse gradients are coalesced first (and stay so),
    since entries of one row must be added before they are squared. If the norm is not
    finite, nothing is scaled: check the returned norm and do not step.

    >>> first, second = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3, 1))
    >>> first.grad = torch.tensor([3.0, 0.0])
    >>> second.grad = torch.sparse_coo_tensor([[1, 1]], [[1.0], [3.0]], (3, 1), check_invariants=True)
    >>> clip_gradients([first, second], max_norm=1.0)
    5.0
    >>> first.grad.tolist(), second.grad.to_dense()[1].tolist()
    ([0.6000000238418579, 0.0], [0.800000011920929])
    """
    if not max_norm > 0:
        raise SettingError(f"max_norm is {max_norm}", remedy="give a number above 0")
    parts = {id(parameter) for parameter in sharded}
    values, norms = [], []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = distinct_rows(parameter.grad)
        value = parameter.grad.values() if parameter.grad.is_sparse else parameter.grad
        norm = torch.linalg.vector_norm(value, dtype=_wide(value))
        values.append(value)
        norms.append(ranks.sum(norm.square()).sqrt() if id(parameter) in parts else norm)
    device = norms[0].device if norms else None
    total = torch.stack([norm.to(device) for norm in norms]).cpu().double().norm().item() if norms else 0.0
    if math.isfinite(total) and total > max_norm:
        for value in values:
            value.mul_(max_norm / total)
    return float(total)


@torch.no_grad()
def sum_gradients(parameters: Iterable[Parameter], ranks: Ranks) -> None:
    """Replace the gradients of every rank by their sum over all ranks.

    A missing gradient counts as zero; a parameter without a gradient on any rank stays without.
    Sparse gradients stay sparse and list the rows that any rank lists, so that a row-wise
    optimiser touches the same rows as in one process.
    """
    if ranks.alone:
        return
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    kinds = ranks.max_int(*(_kind(parameter.grad) for parameter in parameters))
    dense = [parameter for parameter, kind in zip(parameters, kinds, strict=True) if kind == _DENSE]
    for bucket in _buckets(dense):
        flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in bucket])
        whole = torch.split(ranks.sum(flat), [parameter.numel() for parameter in bucket])
        for parameter, part in zip(bucket, whole, strict=True):
            parameter.grad = part.view_as(parameter)
    for parameter, kind in zip(parameters, kinds, strict=True):
        if kind == _SPARSE:
            parameter.grad = _sum_rows(parameter, ranks)


def _kind(gradient: Tensor | None) -> int:
    return _NONE if gradient is None else _SPARSE if gradient.is_sparse else _DENSE


def _gradient(parameter: Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _buckets(parameters: list[Parameter]) -> Iterator[list[Parameter]]:
    """Yield parameters of one type and device that are sent together."""
    bucket: list[Parameter] = []
    for parameter in parameters:
        same_kind = bucket and (parameter.dtype, parameter.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not same_kind or sum(other.numel() for other in bucket) + parameter.numel() > _BUCKET):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


def _sum_rows(table: Parameter, ranks: Ranks) -> Tensor:
    """Return the sum of sparse gradients: by lists of rows, or dense if the lists would be longer than the table."""
    if table.grad is None:
        rows, values = torch.empty(0, dtype=torch.int64, device=table.device), table.new_empty(0, *table.shape[1:])
    else:
        gradient = distinct_rows(table.grad)
        rows, values = gradient.indices()[0], gradient.values()
    table.grad = None  # the memory is needed
    sizes = [int(size) for size in ranks.gather(torch.tensor([len(rows)]), [1] * ranks.world).tolist()]
    if sum(sizes) > len(table):
        touched = torch.zeros(len(table), dtype=torch.int32, device=table.device).index_fill_(0, rows, 1)
        whole = ranks.sum(torch.zeros_like(table).index_copy_(0, rows, values))
        union = ranks.sum(touched).nonzero()[:, 0]
        return _sparse(union, whole.index_select(0, union), table)
    union, place = torch.unique(ranks.gather(rows, sizes), return_inverse=True)
    whole = table.new_zeros(len(union), *table.shape[1:]).index_add_(0, place, ranks.gather(values, sizes))
    return _sparse(union, whole, table)


def _sparse(rows: Tensor, values: Tensor, table: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(
        rows.unsqueeze(0), values, table.shape, is_coalesced=True, check_invariants=False, dtype=table.dtype
    )


def _wide(value: Tensor) -> torch.dtype:
    return torch.float64 if value.dtype == torch.float64 else torch.float32
