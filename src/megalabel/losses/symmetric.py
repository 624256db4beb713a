"""The symmetric form of a loss: labels as anchors too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from megalabel.errors import DataError
from megalabel.losses.base import RowLoss, check_mask, find_positives, require, widen
from megalabel.settings import Fraction, Settings
from megalabel.types import Loss, Targets

if TYPE_CHECKING:
    from numpy.typing import NDArray
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

    def first_scores(self, shares: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the mean score that each label should begin with, given its share of the train points."""
        return np.asarray(np.log(shares))

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Return the log of the probability of each label [B, P] that scores trained with it stand for."""
        return logsigmoid(scores)

    def row_cost(self) -> tuple[int, int]:
        """Return passes over the labels and products of 2 B P d operations of the row loss, streamed."""
        return 2, 4

    def cost(self, anchors: float = 0.0) -> tuple[int, float]:
        """Return passes over the labels and products of 2 B P d operations, for the plan.

        ``anchors`` is the share of the labels of a step that have a positive in it: a symmetric loss scores them again.
        """
        passes, products = self.row_cost()
        return passes, products + (0 if self.symmetric is None else products * anchors)

    def build(self) -> Loss:
        """Return the loss with everything these settings add to it."""
        loss = self.row_loss()
        return loss if self.symmetric is None else Symmetric(loss, weight=self.symmetric)


@dataclass(frozen=True)
class Symmetric:
    r"""Add the same loss on the transposed scores, labels as anchors and queries as candidates.

    .. math::
        \lambda\, \ell(S, Y) + (1 - \lambda)\, \ell(S_A^T, Y_A^T)

    A are the columns with at least one positive: a label without a positive query in the
    batch is not an anchor. ``weight`` is lambda. Kharbanda et al. 2024 (UniDEC), with lambda = 0.5.
    ``log_q`` corrects for the sampling of labels and acts on the first term only.

    If each row has its own candidates, a column holds a different label in each row: pass
    their label ids as ``columns`` [B, S]. The candidates of an anchor are then the rows that
    hold it; other rows are ignored (see :func:`on_candidates`).

    A label's column is complete on the rank that holds the label, so that the streamed form
    needs no row state for the second term; it only computes the scores of the anchors.

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

    takes_columns: ClassVar[bool] = True

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
        columns: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted sum of both directions.

        Args:
            scores: [B, P], or [B, S] if each row has its own candidates.
            targets: dense or :class:`megalabel.types.Targets`, of the same shape.
            mask: of the same shape (or what broadcasts to it), bool; False removes the cell.
            log_q: [P], acts on the first term only.
            columns: [B, S] label ids of each row's candidates, -1 for padding; None if all rows share their columns.

        Returns:
            A scalar.
        """
        forward = self.loss(scores, targets, mask, **given(log_q=log_q))
        shape = (scores.shape[0], scores.shape[1])
        mask = None if mask is None else check_mask(mask, shape)
        positives = find_positives(targets, shape, widen(scores), mask)
        if columns is None:
            anchors, turned = turn(positives)
            masked = None if mask is None else mask.index_select(1, anchors).T
            backward = self.loss(scores.index_select(1, anchors).T, turned, masked)
        else:
            backward = self.loss(*_turn_candidates(scores, positives, mask, columns))
        return self.weight * forward + (1 - self.weight) * backward


def on_candidates(
    loss: Loss, scores: Tensor, targets: Tensor | Targets, mask: Tensor | None, candidates: Tensor
) -> Tensor:
    """Return the loss of scores [B, S] where each row has its own ``candidates`` [B, S], label ids padded with -1.

    A loss that pairs columns (``takes_columns``: :class:`Symmetric`, or a :class:`Sum` that holds one) is given the
    label ids; any other treats the rows one by one and does not need them.

    >>> from megalabel.losses import Softmax, Symmetric
    >>> scores, targets = torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> candidates = torch.tensor([[7, 8], [9, 7]])  # both rows hold label 7, in different slots
    >>> by_label = Softmax()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0]]))
    >>> torch.equal(on_candidates(Symmetric(Softmax(), 0.0), scores, targets, None, candidates), by_label)
    True
    """
    extra: dict[str, Any] = {"columns": candidates} if getattr(loss, "takes_columns", False) else {}
    return loss(scores, targets, mask, **extra)


def given(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Drop the arguments that are None, so that a loss without them still works."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def turn(positives: Positives) -> tuple[Tensor, Targets]:
    """Return the columns with a positive, in order, and the targets with these columns as rows."""
    anchors, rows = torch.unique(positives.cols, return_inverse=True)
    shape = (int(anchors.numel()), positives.shape[0])
    return anchors, Targets(rows, positives.rows, positives.values, shape)


def _turn_candidates(
    scores: Tensor, positives: Positives, mask: Tensor | None, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores, targets and mask [A, M] of the A labels with a positive against the at most M rows that hold each.

    index_select and index_copy are used because their backward is repeatable.
    """
    if columns.shape != scores.shape:
        raise DataError(f"columns have shape {tuple(columns.shape)}, scores {tuple(scores.shape)}")
    slots = positives.rows * columns.shape[1] + positives.cols
    columns = columns.reshape(-1)
    anchors = torch.unique(columns.index_select(0, slots))
    used = torch.isin(columns, anchors) & (columns >= 0)
    if mask is not None:
        used &= mask.reshape(-1)
    cells = used.nonzero()[:, 0]
    labels, order = torch.searchsorted(anchors, columns.index_select(0, cells)).sort(stable=True)
    cells = cells.index_select(0, order)
    counts = torch.bincount(labels, minlength=anchors.numel())
    width = max(1, int(counts.max())) if counts.numel() else 1
    first = counts.cumsum(0) - counts
    places = labels * width + torch.arange(labels.numel(), device=labels.device) - first.index_select(0, labels)

    def turned(cell_values: Tensor) -> Tensor:
        block = cell_values.new_zeros(anchors.numel() * width)
        return block.index_copy(0, places, cell_values.reshape(-1).index_select(0, cells)).view(-1, width)

    values = positives.values.new_zeros(columns.shape).index_copy(0, slots, positives.values)
    return turned(scores), turned(values), turned(used)
