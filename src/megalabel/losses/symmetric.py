"""Labels as anchors too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from megalabel.losses._base import RowLoss, require
from megalabel.losses._cells import check_mask, find_positives, widen
from megalabel.settings import Fraction, Settings
from megalabel.types import Loss, Targets

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Positives


class SymmetricSettings(Settings):
    """Settings of a loss that can be symmetric: the base class of every kind.

    A subclass has a literal ``kind``, the settings of its loss, and :meth:`row_loss`.
    """

    kind: str
    symmetric: Fraction | None = None  # weight of the query side, the label side has the rest; None: queries only

    def row_loss(self) -> RowLoss:
        """Return the loss of this kind, one number per row."""
        raise NotImplementedError

    def build(self) -> Loss:
        """Return the loss with everything these settings add to it."""
        loss = self.row_loss()
        return loss if self.symmetric is None else Symmetric(loss, weight=self.symmetric)


@dataclass(frozen=True)
class Symmetric:
    r"""Add the same loss on the transposed scores, labels as anchors and queries as candidates.

    .. math::
        \lambda\, \ell(S, Y) + (1 - \lambda)\, \ell(S_A^T, Y_A^T)

    A are the columns with at least one positive: a label without a query of its own in the
    batch is no anchor. ``weight`` is lambda. Kharbanda et al. 2024 (UniDEC), with lambda = 0.5.
    ``log_q`` speaks of labels as candidates and acts on the first term only.

    A label's column is complete wherever the label is, so that the streamed form needs no
    row state for the second term; only the anchors' scores are computed for it.

    Example:
        >>> import torch
        >>> from megalabel.losses import Softmax, Symmetric
        >>> scores, targets = torch.randn(3, 3), torch.eye(3)
        >>> both = (Softmax()(scores, targets) + Softmax()(scores.T, targets)) / 2
        >>> torch.allclose(Symmetric(Softmax())(scores, targets), both)
        True
    """

    loss: Loss
    weight: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.weight <= 1, f"weight is {self.weight}", "choose a number from 0 to 1")
        require(
            not isinstance(self.loss, Symmetric), "a symmetric loss is symmetric already", "wrap the inner loss once"
        )
        reduction = getattr(self.loss, "reduction", "mean")
        require(
            reduction != "none", "rows and columns cannot be added one by one", 'use reduction "mean", "sum" or "cells"'
        )

    def __call__(
        self,
        scores: Tensor,
        targets: Tensor | Targets,
        mask: Tensor | None = None,
        *,
        log_q: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted sum of both directions; arguments as in :class:`BCE`."""
        extra = given(log_q=log_q)
        forward = self.loss(scores, targets, mask, **extra)
        shape = (scores.shape[0], scores.shape[1])
        mask = None if mask is None else check_mask(mask, shape)
        anchors, turned = turn(find_positives(targets, shape, widen(scores), mask))
        masked = None if mask is None else mask.index_select(1, anchors).T
        backward = self.loss(scores.index_select(1, anchors).T, turned, masked)
        return self.weight * forward + (1 - self.weight) * backward


def given(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Keep the arguments that are there, so that a loss that knows none of them still works."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def turn(positives: Positives) -> tuple[Tensor, Targets]:
    """Return the columns with a positive, in order, and the targets with these columns as rows."""
    anchors, rows = torch.unique(positives.cols, return_inverse=True)
    shape = (int(anchors.numel()), positives.shape[0])
    return anchors, Targets(rows, positives.rows, positives.values, shape)
