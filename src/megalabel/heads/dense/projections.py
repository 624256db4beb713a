"""Layers between an encoder and a head, and vectors of length 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu, linear, normalize, relu

from megalabel.encoders.spectral import over_spectral_norm
from megalabel.heads.dense.tables import BLOCK

__all__ = ["GeluResidual", "ResidualIdentity", "SpectralLinear", "make_projection", "unit_rows"]

MANY_ROWS = 65_536  # above this many rows, memory matters more than speed
_NEAR_ZERO = 0.02  # size of a residual layer at the start
_NORMAL = 0.02  # standard deviation of the weights of ANCE's layer at the start


def make_projection(kind: str, encoder_dim: int, dim: int, rate: float, *, labels: bool = False) -> nn.Module:
    """Return a projection of queries and label texts, or of label texts alone.

    ``linear`` (Linear, Dropout) and ``tanh`` (Linear, Tanh, Dropout) are g2 and g1 of UniDEC (Kharbanda et al.
    2024); ``tanh`` is also the head of SimCSE (Gao et al., EMNLP 2021). ``layer_norm`` (Linear from N(0, 0.02),
    LayerNorm, Dropout) is that of ANCE (Xiong et al., ICLR 2021). ``residual_identity`` is the layer of DeepXML (Dahiya
    et al., WSDM 2021), ``residual`` our form of it that starts near zero; ``gated_residual``, ``relu_residual`` and
    ``gelu_residual`` are those of DECAF, ECLARE and InceptionXML+.
    """
    if kind == "none":
        return nn.Identity()
    if kind == "gated_residual":
        return GatedResidual(dim, rate, ends=not labels)
    residuals = {
        "residual": Residual,
        "residual_identity": ResidualIdentity,
        "relu_residual": ReluResidual,
        "gelu_residual": GeluResidual,
    }
    if kind in residuals:
        return residuals[kind](dim, rate)
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


class SpectralLinear(nn.Module):
    """W h / sigma(W) + b, with sigma the spectral norm; W starts at the identity if it is square, else at random.

    >>> SpectralLinear(2, 2)(torch.tensor([[3.0, -1.0]])).tolist()
    [[3.0, -1.0]]
    """

    def __init__(self, dim_in: int, dim_out: int, *, identity: bool = True) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(dim_out, dim_in)), nn.Parameter(torch.zeros(dim_out))
        nn.init.eye_(self.weight) if identity and dim_in == dim_out else nn.init.xavier_uniform_(self.weight)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return vectors [..., dim_out] of vectors [..., dim_in]."""
        return linear(vectors, over_spectral_norm(self.weight), self.bias)


class ReluResidual(nn.Module):
    """h + W drop(relu(h)) / sigma(W) + b, with W the identity and b zero at the start.

    The layer R of ECLARE (Mittal et al., WWW 2021, section 3), with weight 1 for the second term.
    """

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.layer, self.drop = SpectralLinear(dim, dim), nn.Dropout(rate)

    def forward(self, encoded: Tensor) -> Tensor:
        """Return vectors [n, dim] of vectors [n, dim]."""
        output: Tensor = encoded + self.layer(self.drop(relu(encoded)))
        return output


class GatedResidual(nn.Module):
    r"""The layer R of DECAF (Mittal et al., WSDM 2021, section 3), gated per dimension.

    .. math:: R(h) = \sigma(a) \odot (W\, \text{drop}(\text{relu}(h)) / \sigma(W) + b) + \sigma(c) \odot h

    The gates a and c [dim] and b start at zero, W at the identity. A layer that ``ends`` returns drop(relu(R(h))), as
    DECAF's does for queries; its layer for label texts returns R(h).
    """

    def __init__(self, dim: int, rate: float, *, ends: bool) -> None:
        super().__init__()
        self.layer, self.drop, self.ends = SpectralLinear(dim, dim), nn.Dropout(rate), ends
        self.layer_gate, self.input_gate = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, encoded: Tensor) -> Tensor:
        """Return vectors [n, dim] of vectors [n, dim]."""
        inner: Tensor = self.layer(self.drop(relu(encoded)))
        output = self.layer_gate.sigmoid() * inner + self.input_gate.sigmoid() * encoded
        return self.drop(relu(output)) if self.ends else output


class GeluResidual(nn.Module):
    """drop(h + gelu(W h / sigma(W) + b)), with W Xavier-uniform and b zero at the start.

    The layer before each of the two classifiers of InceptionXML+ (Kharbanda et al., SIGIR 2023, section 4).
    """

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.layer, self.drop = SpectralLinear(dim, dim, identity=False), nn.Dropout(rate)

    def forward(self, encoded: Tensor) -> Tensor:
        """Return vectors [n, dim] of vectors [n, dim]."""
        output: Tensor = self.drop(encoded + gelu(self.layer(encoded)))
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
