"""Make a Hugging Face model fast on a CPU: no padding, and dropout masks that are cheap to draw.

Texts are concatenated. Every layer but attention treats tokens independently, so text boundaries do
not matter. Attention works on runs of texts of the same length, each run a batch without a mask. The
model calls it through the attention interface of transformers; a trial detects models that cannot,
which get padding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FastDropout", "Runs", "dropout_noise", "first_position", "use_fast_dropout", "use_packed_attention"]

_NAME = "megalabel_packed"
_STEPS = 2**16  # a 64-bit random integer decides four numbers


@dataclass(frozen=True, slots=True)
class Runs:
    """The layout of concatenated texts: runs of texts of the same length."""

    shapes: list[tuple[int, int]]  # texts in the run, tokens of each
    _orders: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, lengths: NDArray[np.int64]) -> Runs:
        """Return the runs of texts with these lengths, in their order.

        >>> Runs.of(np.array([4, 3, 3])).shapes
        [(1, 4), (2, 3)]
        """
        firsts = np.flatnonzero(np.diff(lengths, prepend=-1))
        counts = np.diff(firsts, append=len(lengths))
        return cls(list(zip(counts.tolist(), lengths[firsts].tolist(), strict=True)))

    def split(self, rows: Tensor) -> list[Tensor]:
        """Cut [tokens, d] into one [texts, length, d] for each run."""
        parts = torch.split(rows, [texts * length for texts, length in self.shapes])
        return [part.view(*shape, part.shape[1]) for part, shape in zip(parts, self.shapes, strict=True)]

    def heads(self, rows: Tensor, heads: int) -> list[Tensor]:
        """Cut [tokens * heads, d], ordered (text, head, token), into one [texts * heads, length, d] for each run."""
        parts = torch.split(rows, [texts * heads * length for texts, length in self.shapes])
        return [part.view(-1, length, part.shape[1]) for part, (_, length) in zip(parts, self.shapes, strict=True)]

    def squares(self, cells: Tensor, heads: int) -> list[Tensor]:
        """Cut one number per (text, head, token, token) into one [texts * heads, length, length] for each run."""
        parts = torch.split(cells, [texts * heads * length**2 for texts, length in self.shapes])
        return [part.view(-1, length, length) for part, (_, length) in zip(parts, self.shapes, strict=True)]

    def orders(self, heads: int) -> tuple[Tensor, Tensor]:
        """Return the order that takes rows (text, token, head) to (text, head, token), and the one back."""
        if heads not in self._orders:
            parts: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
            start = 0
            for texts, length in self.shapes:
                rows = np.arange(start, start + texts * length * heads)
                parts[0].append(rows.reshape(texts, length, heads).transpose(0, 2, 1).ravel())
                parts[1].append(rows.reshape(texts, heads, length).transpose(0, 2, 1).ravel())
                start += len(rows)
            forth, back = (torch.from_numpy(np.concatenate(part)) for part in parts)
            self._orders[heads] = forth, back
        return self._orders[heads]


class _Attention(Function):
    """softmax(q k^T * scale), dropout, times v, within each text; q, k, v and result are [tokens, heads, d]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, runs: Runs, scale: float, dropout: float) -> Tensor:
        shape, heads = v.shape, v.shape[1]
        forth, back = runs.orders(heads)
        q, k, v = (part.flatten(0, 1).index_select(0, forth) for part in (q, k, v))
        weights = q.new_empty(sum(texts * heads * length**2 for texts, length in runs.shapes))
        noise = dropout_noise(weights, dropout) if dropout else None
        out = torch.empty_like(v)
        parts = [runs.heads(part, heads) for part in (q, k, v, out)]
        for qs, ks, vs, outs, w, n in zip(*parts, *_cells(runs, heads, weights, noise), strict=True):
            torch.bmm(qs, ks.transpose(1, 2), out=w)
            torch.softmax(w.mul_(scale), dim=2, out=w)
            torch.bmm(w if n is None else w * n, vs, out=outs)
        ctx.runs, ctx.scale, ctx.shape = runs, scale, shape
        ctx.save_for_backward(q, k, v, weights, noise)
        return out.index_select(0, back).view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, noise = ctx.saved_tensors
        heads = ctx.shape[1]
        forth, back = ctx.runs.orders(heads)
        gradient = gradient.flatten(0, 1).index_select(0, forth)
        gradients = [torch.empty_like(part) for part in (q, k, v)]
        parts = [ctx.runs.heads(part, heads) for part in (q, k, v, gradient, *gradients)]
        cells = _cells(ctx.runs, heads, weights, noise)
        for qs, ks, vs, gs, of_q, of_k, of_v, w, n in zip(*parts, *cells, strict=True):
            torch.bmm((w if n is None else w * n).transpose(1, 2), gs, out=of_v)
            of_w = torch.bmm(gs, vs.transpose(1, 2))
            if n is not None:
                of_w.mul_(n)
            of_w = torch._softmax_backward_data(of_w, w, 2, w.dtype).mul_(ctx.scale)
            torch.bmm(of_w, ks, out=of_q)
            torch.bmm(of_w.transpose(1, 2), qs, out=of_k)
        return (*(part.index_select(0, back).view(ctx.shape) for part in gradients), None, None, None)


def _cells(runs: Runs, heads: int, weights: Tensor, noise: Tensor | None) -> tuple[list[Tensor], list[Any]]:
    """Return attention weights and noise of each run."""
    return runs.squares(weights, heads), [None] * len(runs.shapes) if noise is None else runs.squares(noise, heads)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    runs: Runs | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend with the signature that transformers expects: [1, heads, tokens, d] to [1, tokens, heads, d]."""
    if runs is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    if any(options.get(name) is not None for name in ("sliding_window", "position_bias", "softcap")):
        raise NotImplementedError("only standard attention can be packed")
    scale = options.get("scaling") or query.shape[3] ** -0.5
    parts = (part[0].transpose(0, 1) for part in (query, key, value))
    out: Tensor = _Attention.apply(*parts, runs, scale, options.get("dropout") or 0.0)  # type: ignore[no-untyped-call]
    return out.unsqueeze(0), None


def first_position(model: Any) -> int:
    """Return the position of the first token: models of the RoBERTa family start after the padding's."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def use_packed_attention(model: Any, texts: list[list[int]]) -> bool:
    """Switch a model to packed attention, and return whether it gives the same states for the texts as padding does."""
    before = model.config._attn_implementation
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

        AttentionInterface.register(_NAME, _attend)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)
        if model.config._attn_implementation == _NAME and _same(model, texts):
            return True
    except Exception:  # the model or this version of transformers does not support it
        pass
    model.config._attn_implementation = before
    return False


@torch.no_grad()
def _same(model: Any, texts: list[list[int]]) -> bool:
    """Compare the states of the texts, packed and alone."""
    mode = model.training
    model.eval()
    try:
        lengths = np.array([len(text) for text in texts])
        positions = np.concatenate([np.arange(length) for length in lengths]) + first_position(model)
        ids = torch.tensor([[token for text in texts for token in text]])
        packed = model(input_ids=ids, position_ids=torch.from_numpy(positions)[None], runs=Runs.of(lengths))
        alone = [model(input_ids=torch.tensor([text])).last_hidden_state[0] for text in texts]
        return torch.allclose(packed.last_hidden_state[0], torch.cat(alone), atol=1e-4, rtol=1e-3)
    finally:
        model.train(mode)


class FastDropout(nn.Dropout):
    """``nn.Dropout``, with :func:`dropout_noise` on a CPU.

    >>> _ = torch.manual_seed(0)
    >>> FastDropout(0.25)(torch.ones(2, 5)).unique().tolist()
    [0.0, 1.3333333730697632]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with a share ``p`` of its numbers set to zero and the rest scaled up."""
        if not self.training or self.p == 0:
            return input
        if input.device.type != "cpu" or self.inplace:
            return super().forward(input)
        return input * dropout_noise(input, self.p)


def dropout_noise(like: Tensor, p: float) -> Tensor:
    """Return factors for dropout: 0 with probability ``p``, else 1 / (1 - p); shape and type of ``like``, on a CPU.

    ``p`` is rounded to a multiple of 1 / 65,536. The draws come from torch's generator, so that a
    restored random state gives the same mask.

    >>> dropout_noise(torch.empty(2, 3), 1.0).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    dropped = round(p * _STEPS)
    if dropped == _STEPS:
        return torch.zeros_like(like)
    count = like.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:count]
    kept = (draws >= dropped - _STEPS // 2).view(like.shape)
    return kept.to(like.dtype).mul_(_STEPS / (_STEPS - dropped))


def use_fast_dropout(model: nn.Module) -> None:
    """Replace every plain nn.Dropout of a model by a FastDropout."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FastDropout(child.p, child.inplace))
