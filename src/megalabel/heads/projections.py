"""Layers between an encoder and a head, and vectors of length 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, normalize, relu

from megalabel.encoders.spectral import over_spectral_norm
from megalabel.heads.tables import BLOCK

__all__ = ["ResidualIdentity", "make_projection", "unit_rows"]

MANY_ROWS = 65_536  # above this many rows, memory matters more than speed
_NEAR_ZERO = 0.02  # size of a residual layer at the start
_NORMAL = 0.02  # standard deviation of the weights of ANCE's layer at the start


def make_projection(kind: str, encoder_dim: int, dim: int, rate: float) -> nn.Module:
    """Return the projection of queries and label texts.

    ``linear`` (Linear, Dropout) and ``tanh`` (Linear, Tanh, Dropout) are g2 and g1 of UniDEC (Kharbanda et al.
    2024); ``tanh`` is also the head of SimCSE (Gao et al., EMNLP 2021). ``layer_norm`` (Linear from N(0, 0.02),
    LayerNorm, Dropout) is that of ANCE (Xiong et al., ICLR 2021). ``residual_identity`` is the layer of DeepXML (Dahiya
    et al., WSDM 2021); ``residual`` our form of it that starts near zero.
    """
    if kind == "none":
        return nn.Identity()
    if kind == "residual":
        return Residual(dim, rate)
    if kind == "residual_identity":
        return ResidualIdentity(dim, rate)
    layer = nn.Linear(encoder_dim, dim)
    if kind == "layer_norm":
        nn.init.normal_(layer.weight, std=_NORMAL)
        nn.init.zeros_(layer.bias)
    after: dict[str, list[nn.Module]] = {"linear": [], "tanh": [nn.Tanh()], "layer_norm": [nn.LayerNorm(dim)]}
    return nn.Sequential(layer, *after[kind], nn.Dropout(rate))


class Residual(nn.Module):
    """h + dropout(relu(W h)), with W near zero at the start: for features that are good already."""

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, dim, bias=False)
        nn.init.normal_(self.layer.weight, std=_NEAR_ZERO * dim**-0.5)
        self.drop = nn.Dropout(rate)

    def forward(self, encoded: Tensor) -> Tensor:
        output: Tensor = encoded + self.drop(relu(self.layer(encoded)))
        return output


class ResidualIdentity(nn.Module):
    """h + dropout(relu(W h / sigma(W) + b)), with W the identity and b zero at the start; sigma is the spectral norm.

    At the start it doubles what is positive in h: features that a ReLU made keep their directions.
    """

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.eye(dim)), nn.Parameter(torch.zeros(dim))
        self.drop = nn.Dropout(rate)

    def forward(self, encoded: Tensor) -> Tensor:
        """Return vectors [n, dim] of vectors [n, dim]."""
        output: Tensor = encoded + self.drop(relu(linear(encoded, over_spectral_norm(self.weight), self.bias)))
        return output


def unit_rows(vectors: Tensor) -> Tensor:
    r"""Return y [n, d], :math:`y_i = x_i / |x_i|`, as ``torch.nn.functional.normalize`` does.

    With many rows the gradient, :math:`(g_i - y_i \langle y_i, g_i \rangle) / |x_i|`, is computed block by block:
    besides x, only y, g and the result are in memory, where plain torch holds three more tensors of that size.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    if len(vectors) <= MANY_ROWS:
        return normalize(vectors, dim=1)
    unit: Tensor = _UnitRows.apply(vectors)  # type: ignore[no-untyped-call]
    return unit


class _UnitRows(Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min_(1e-12)
        unit = vectors / lengths
        ctx.save_for_backward(unit, lengths)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        unit, lengths = ctx.saved_tensors
        out: Tensor = torch.empty_like(gradient)
        for start in range(0, len(unit), BLOCK):
            rows = slice(start, start + BLOCK)
            along = torch.linalg.vecdot(unit[rows], gradient[rows]).unsqueeze(1)
            torch.sub(gradient[rows], unit[rows] * along, out=out[rows]).div_(lengths[rows])
        return out
