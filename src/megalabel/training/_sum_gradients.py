"""Gradients of what every rank holds, added up over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.training._distinct_rows import distinct_rows

if TYPE_CHECKING:
    from torch.nn import Parameter

    from megalabel.ranks import Ranks

__all__ = ["sum_gradients"]

_BUCKET = 1 << 23  # numbers sent at a time
_NONE, _DENSE, _SPARSE = range(3)


@torch.no_grad()
def sum_gradients(parameters: Iterable[Parameter], ranks: Ranks) -> None:
    """Give every rank the sum of all ranks' gradients, in place of its own.

    A parameter that some rank has no gradient for counts as zero there; one that none has stays
    without. Sparse gradients stay sparse, and list the rows that any rank lists: an optimiser with
    row-wise updates touches the same rows as in one process.
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
        alike = bucket and (parameter.dtype, parameter.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or sum(other.numel() for other in bucket) + parameter.numel() > _BUCKET):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


def _sum_rows(table: Parameter, ranks: Ranks) -> Tensor:
    """Return the sum of sparse gradients: by lists of rows, or whole where the lists would be longer than the table."""
    if table.grad is None:
        rows, values = torch.empty(0, dtype=torch.int64, device=table.device), table.new_empty(0, *table.shape[1:])
    else:
        own = distinct_rows(table.grad)
        rows, values = own.indices()[0], own.values()
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
