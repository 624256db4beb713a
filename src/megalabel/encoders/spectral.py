"""Spectral normalisation of a matrix, without a state."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["over_spectral_norm"]

_TINY = 1e-12


def over_spectral_norm(weight: Tensor) -> Tensor:
    r"""Return W / sigma(W) for a matrix W [m, n], with sigma its largest singular value.

    .. math:: \sigma(W) = u^T W v, \qquad \frac{\partial \sigma}{\partial W} = u v^T

    with u and v the singular vectors of sigma (Miyato et al., "Spectral Normalization for Generative Adversarial
    Networks", ICLR 2018, equations 8 and 10). They come from an eigendecomposition of W^T W, or of W W^T if that is
    smaller (6 ms for 300 x 300), where released code takes one step of a power iteration from vectors kept as buffers:
    the result depends on W alone, so that encoding a text a second time, or after a resume, gives the same bits.

    >>> over_spectral_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]])).tolist()
    [[0.75, 0.0], [0.0, -1.0]]
    """
    with torch.autocast(weight.device.type, enabled=False):
        with torch.no_grad():
            wide = weight.shape[0] < weight.shape[1]
            matrix = weight.T if wide else weight
            right = torch.linalg.eigh(matrix.T @ matrix).eigenvectors[:, -1]
            left = matrix @ right
            left /= torch.linalg.vector_norm(left).clamp_min(_TINY)
            left, right = (right, left) if wide else (left, right)
        sigma = torch.dot(left, weight @ right)
        normalised: Tensor = weight / sigma.clamp_min(_TINY)
    return normalised
