"""Clipping by the norm of all gradients together, sparse ones included."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from megalabel.errors import SettingError
from megalabel.ranks import ALONE, Ranks
from megalabel.training._distinct_rows import distinct_rows

__all__ = ["clip_gradients"]


@torch.no_grad()
def clip_gradients(
    parameters: Iterable[Tensor], max_norm: float, *, sharded: Iterable[Tensor] = (), ranks: Ranks = ALONE
) -> float:
    """Scale all gradients in place so that their joint Euclidean norm is at most ``max_norm``.

    ``sharded`` are those parameters of which every rank has rows of its own: their norm is that of the rows
    of all ranks. Returns the norm before clipping. Sparse gradients are coalesced first (and stay so),
    since entries of one row must be added before they are squared. When the norm is not
    finite nothing is scaled: look at the returned number and do not step.

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


def _wide(value: Tensor) -> torch.dtype:
    return torch.float64 if value.dtype == torch.float64 else torch.float32
