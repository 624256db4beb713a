"""Convolutions along the embedding dimension, each pooled to its maxima, a block of texts at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

__all__ = ["window_maxima"]

_BLOCK = 64  # texts whose products stay in the processor's cache


def window_maxima(channels: Tensor, gate: Tensor, kernels: list[Tensor], bins: int) -> Tensor:
    r"""Return [n, bins (all filters)]: what each filter finds at most in each of ``bins`` stretches.

    For channels X [n, dim, c], a gate g [n, dim] and kernels K [filters, c, w], of even w:

    .. math:: m_{ibf} = \max_{j \in b} \sum_{c} \sum_{a < w} K_{fca}\, g_{i, jw/2 + a}\, X_{i, jw/2 + a, c}

    A stretch has ceil(windows / bins) windows, the last ones fewer; one without gives -inf.
    Kernel follows kernel, in each of them filters run fastest. With channels innermost half a
    window is a stretch of memory, so that one product gives the left and the right half of
    every window, and none is copied. Gradients flow through the maxima only. Computes in the
    type of the kernels, also under autocast.

    >>> channels = torch.arange(8.0).view(1, 8, 1)
    >>> window_maxima(channels, torch.ones(1, 8), [torch.ones(1, 1, 4)], bins=2).tolist()  # 0..3, 2..5, 4..7
    [[14.0, 22.0]]
    """
    kind = kernels[0].dtype
    with torch.autocast(channels.device.type, enabled=False):
        found: Tensor = _WindowMaxima.apply(channels.to(kind), gate.to(kind), bins, *kernels)  # type: ignore[no-untyped-call]
    return found


class _WindowMaxima(Function):
    @staticmethod
    def forward(ctx: Any, channels: Tensor, gate: Tensor, bins: int, *kernels: Tensor) -> Tensor:
        n = len(channels)
        maxima = [channels.new_empty(n, bins, len(kernel)) for kernel in kernels]
        places = [torch.empty(part.shape, dtype=torch.int64, device=part.device) for part in maxima]
        halves = [_halves(kernel) for kernel in kernels]
        for start in range(0, n, _BLOCK):
            block = slice(start, start + _BLOCK)
            gated = channels[block] * gate[block].unsqueeze(2)
            for (rows, half), best, place in zip(halves, maxima, places, strict=True):
                filters = len(rows) // 2
                found = _stretches(gated, half) @ rows.T
                windows = found[:, :-1, :filters] + found[:, 1:, filters:]
                each = -(-windows.shape[1] // bins)
                windows = pad(windows, (0, 0, 0, bins * each - windows.shape[1]), value=-torch.inf)
                torch.max(windows.view(-1, bins, each, filters), dim=2, out=(best[block], place[block]))
        ctx.save_for_backward(channels, gate, *kernels, *places)
        return torch.cat([best.flatten(1) for best in maxima], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        channels, gate, *rest = ctx.saved_tensors
        kernels, places = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        gradients = torch.split(gradient, [place[0].numel() for place in places], dim=1)
        halves = [_halves(kernel) for kernel in kernels]
        of_halves = [torch.zeros_like(rows) for rows, _ in halves]
        of_channels, of_gate = torch.zeros_like(channels), torch.zeros_like(gate)
        for start in range(0, len(channels), _BLOCK):
            block = slice(start, start + _BLOCK)
            gated = channels[block] * gate[block].unsqueeze(2)
            of_gated = torch.zeros_like(gated)
            for (rows, half), total, place, part in zip(halves, of_halves, places, gradients, strict=True):
                stretches = _stretches(gated, half)
                sent = _send_back(part[block].view(place[block].shape), place[block], stretches.shape[1])
                total.addmm_(sent.flatten(0, 1).T, stretches.flatten(0, 1))
                _stretches(of_gated, half).add_(sent @ rows)
            of_channels[block] = of_gated * gate[block].unsqueeze(2)
            of_gate[block] = of_gated.mul_(channels[block]).sum(dim=2)
        of_kernels = [_whole(total, kernel) for total, kernel in zip(of_halves, kernels, strict=True)]
        return of_channels, of_gate, None, *of_kernels


def _halves(kernel: Tensor) -> tuple[Tensor, int]:
    """Return the left halves of a kernel's filters, then the right ones, [2 filters, w/2 c], and w/2."""
    filters, channels, window = kernel.shape
    half = window // 2
    rows = kernel.view(filters, channels, 2, half).permute(2, 0, 3, 1).reshape(2 * filters, half * channels)
    return rows, half


def _whole(rows: Tensor, kernel: Tensor) -> Tensor:
    """Put halves together again."""
    filters, channels, window = kernel.shape
    return rows.view(2, filters, window // 2, channels).permute(1, 3, 0, 2).reshape(kernel.shape)


def _stretches(gated: Tensor, half: int) -> Tensor:
    """View [b, dim, c] as [b, dim / half, half c]; what is left over at the end stays out."""
    b, dim, channels = gated.shape
    count = dim // half
    return gated[:, : count * half].view(b, count, half * channels)


def _send_back(gradient: Tensor, place: Tensor, count: int) -> Tensor:
    """Return the gradient [b, count, 2 filters] of the halves, given that of the maxima [b, bins, filters]."""
    b, bins, filters = gradient.shape
    each = -(-(count - 1) // bins)
    windows = gradient.new_zeros(b, bins, each, filters).scatter_(2, place.unsqueeze(2), gradient.unsqueeze(2))
    windows = windows.view(b, bins * each, filters)[:, : count - 1]
    sent = gradient.new_zeros(b, count, 2 * filters)
    sent[:, :-1, :filters] = windows
    sent[:, 1:, filters:] = windows
    return sent
