"""Millions of rows scaled to length 1, with a gradient that takes no more memory than it must."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["unit_rows"]

_BLOCK = 16_384  # rows whose intermediate results are held at once
_TINY = 1e-12  # as in torch.nn.functional.normalize


def unit_rows(vectors: Tensor) -> Tensor:
    r"""Return y [n, d], :math:`y_i = x_i / |x_i|`, as ``torch.nn.functional.normalize`` does.

    The gradient, :math:`(g_i - y_i \langle y_i, g_i \rangle) / |x_i|`, is made a block of rows at a
    time: beside x there are y, g and the result, where plain torch holds three tensors of that size more.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    found: Tensor = _UnitRows.apply(vectors)  # type: ignore[no-untyped-call]
    return found


class _UnitRows(Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min_(_TINY)
        found = vectors / lengths
        ctx.save_for_backward(found, lengths)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        found, lengths = ctx.saved_tensors
        out: Tensor = torch.empty_like(gradient)
        for start in range(0, len(found), _BLOCK):
            rows = slice(start, start + _BLOCK)
            along = torch.linalg.vecdot(found[rows], gradient[rows]).unsqueeze(1)
            torch.sub(gradient[rows], found[rows] * along, out=out[rows]).div_(lengths[rows])
        return out
