"""One-versus-all binary cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch.nn.functional import softplus

from megalabel.losses.base import RowLoss, row_sum
from megalabel.losses.streaming.streams import SeparableStream
from megalabel.losses.sum import Sum
from megalabel.losses.symmetric import SymmetricSettings
from megalabel.settings import NonNegative
from megalabel.types import Loss

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives, Stream

FOLD = 20.0  # for scores up to this, the product of four exponentials fits float32
FAR = 40.0  # above it, softplus(x) is x to the last bit of float64


# Of row losses that are sums over labels: their mean, their sum (Renee), or the mean over rows and labels (for a head
# trained beside another).
Reduction = Literal["mean", "sum", "cells"]


class BCESettings(SymmetricSettings):
    """Settings of :class:`BCE`."""

    kind: Literal["bce"]
    reduction: Reduction = "mean"
    renamed: ClassVar[Mapping[str, str]] = {"cells": "reduction: cells"}

    def row_loss(self) -> BCE:
        """Return the loss of this kind."""
        return BCE(reduction=self.reduction)

    def row_cost(self) -> tuple[int, int]:
        """Return one pass and three products: cells are independent."""
        return 1, 3


class LossWithBCE(SymmetricSettings):
    """Settings of a loss to which a BCE can be added.

    That BCE is the mean over queries and labels (UniDEC, Kharbanda et al. 2024, arXiv 2405.03714); as a sum over
    labels it would outweigh the loss it is added to by the size of the pool. It has no label side.
    """

    bce: NonNegative = 0.0  # weight of the added BCE

    def cost(self, anchors: float = 0.0) -> tuple[int, float]:
        """Return the most of both losses; see :meth:`SymmetricSettings.cost`."""
        passes, products = super().cost(anchors)
        return (passes, max(products, 3)) if self.bce else (passes, products)

    def build(self) -> Loss:
        """Return the loss with everything these settings add to it."""
        loss = super().build()
        return Sum((loss, BCE(reduction="cells")), weights=(1.0, self.bce)) if self.bce else loss


@dataclass(frozen=True)
class BCE(RowLoss):
    r"""Decide for each label independently whether it belongs to the query.

    .. math::
        \ell_i = \sum_l y_{il} \log(1 + e^{-s_{il}}) + (1 - y_{il}) \log(1 + e^{s_{il}})

        \partial \ell_i / \partial s_{il} = \sigma(s_{il}) - y_{il}

    Summed over labels, then averaged over rows; ``reduction="cells"`` averages over both, as
    published code does, which is small beside the loss of a whole row. ``reduction="sum"`` sums over
    both: Renee (Jain et al. 2023, "Renee: end-to-end training of extreme classification models") writes
    sigma(s) - y in place of the scores and takes no mean, and so does the streamed form, block by block.
    Soft targets y in (0, 1] are real-valued targets: the optimum of a cell is :math:`\sigma(s) = y`. A row without
    positives keeps its negative terms. ``log_q`` is subtracted from the scores of negatives,
    which for small probabilities equals weighting a sampled negative by 1/q.

    Cosines lie in [-1, 1], so BCE on bare cosines cannot reject a million labels: use a
    temperature and a bias, fixed or learnt (Zhai et al. 2023, "Sigmoid loss for language
    image pre-training"). They belong to the scores, not to the loss:

    >>> import torch
    >>> from megalabel.losses import BCE, streamed
    >>> queries, labels = torch.randn(2, 4), torch.randn(3, 4, requires_grad=True)
    >>> targets = torch.tensor([[1.0, 0, 0], [0, 1, 1]])
    >>> temperature, bias = torch.tensor(0.1, requires_grad=True), torch.tensor(-10.0, requires_grad=True)
    >>> value = streamed(BCE(), queries, labels, targets, temperature=temperature, bias=bias)
    >>> torch.allclose(value, BCE()(queries @ labels.T / temperature + bias, targets))
    True
    >>> value.backward(); temperature.grad is not None and bias.grad is not None
    True

    Siblings: :class:`SquaredHinge` (a margin instead of a probability),
    :class:`DecoupledSoftmax` (positives against the negatives of the row).

    Example:
        >>> scores = torch.tensor([[2.0, 0.5, -1.0, 1.0, 0.0]])
        >>> round(BCE()(scores, torch.tensor([[1.0, 1, 0, 0, 1]])).item(), 5)
        2.92068
    """

    raises_positives = True
    lowers_negatives = True

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        return SeparableStream(self, positives, ranks)

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        return self._negative(negatives).sum(1) + row_sum(positives, self._positive(positives))

    def _negative(self, scores: Tensor) -> Tensor:
        return softplus(scores, 1.0, FAR)

    def _negative_sum(self, block: Tensor, scratch: Tensor) -> Tensor:
        if block.device.type != "cpu" or min(block.shape) < 4 or bool(block.amax() > FOLD):
            return self._negative(block).sum(1)
        # log(1+a) + log(1+b) = log(1 + (a + b + ab)): a quarter of the slow logarithms, no digit of tiny terms lost
        quarter = block.shape[1] // 4
        terms = torch.exp(block, out=scratch)
        for width in (2 * quarter, quarter):
            left, right = terms[:, :width], terms[:, width : 2 * width]
            left.add_(right.addcmul_(left, right))
        return left.log1p_().sum(1) + terms[:, 4 * quarter :].log1p().sum(1)

    def _negative_gradient(self, scores: Tensor) -> Tensor:
        return scores.sigmoid_()

    def _positive(self, positives: Positives) -> Tensor:
        s, y = positives.scores, positives.values
        return y * softplus(-s, 1.0, FAR) + (1 - y) * softplus(s, 1.0, FAR)
