"""One-versus-all squared hinge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from torch.nn.functional import relu

from megalabel.losses.base import RowLoss, require, row_sum
from megalabel.losses.bce import LossWithBCE, Reduction
from megalabel.losses.streaming.streams import SeparableStream
from megalabel.settings import NonNegative

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives, Stream


class SquaredHingeSettings(LossWithBCE):
    """Settings of :class:`SquaredHinge`."""

    kind: Literal["squared_hinge"]
    margin: NonNegative = 1.0
    reduction: Reduction = "mean"
    renamed: ClassVar[Mapping[str, str]] = {"cells": "reduction: cells"}

    def row_loss(self) -> SquaredHinge:
        """Return the loss of this kind."""
        return SquaredHinge(margin=self.margin, reduction=self.reduction)

    def first_scores(self, shares: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return minus the margin: negatives begin where their loss ends."""
        return np.full_like(shares, -self.margin)

    def row_cost(self) -> tuple[int, int]:
        """Return one pass and three products: cells are independent."""
        return 1, 3


@dataclass(frozen=True)
class SquaredHinge(RowLoss):
    r"""Keep positives above the margin and negatives below minus the margin; the loss of linear one-vs-all rankers.

    .. math::
        \ell_i = \sum_l y_{il} \max(0, m - s_{il})^2 + (1 - y_{il}) \max(0, m + s_{il})^2

        \partial \ell_i / \partial s_{il} = -2 y_{il} \max(0, m - s_{il}) + 2 (1 - y_{il}) \max(0, m + s_{il})

    Summed over labels, then averaged over rows. A cell beyond its margin has no gradient,
    so most negatives of a trained model cost nothing to store. Soft targets y in (0, 1]
    mix both halves; a row without positives keeps its negative terms.

    Siblings: :class:`BCE`, which is smooth.

    Example:
        >>> import torch
        >>> from megalabel.losses import SquaredHinge
        >>> SquaredHinge()(torch.tensor([[2.0, 0.5, -1.0, 1.0]]), torch.tensor([[1.0, 1, 0, 0]]))
        tensor(4.2500)
    """

    margin: float = 1.0

    raises_positives = True
    lowers_negatives = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.margin >= 0, f"margin is {self.margin}", "choose 0 or more")

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        return SeparableStream(self, positives, ranks)

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        return self._negative(negatives).sum(1) + row_sum(positives, self._positive(positives))

    def _negative(self, scores: Tensor) -> Tensor:
        return relu(scores + self.margin).square()

    def _negative_sum(self, block: Tensor, scratch: Tensor) -> Tensor:
        return torch.add(block, self.margin, out=scratch).clamp_(min=0).square_().sum(1)

    def _negative_gradient(self, scores: Tensor) -> Tensor:
        return scores.add_(self.margin).clamp_(min=0).mul_(2)

    def _positive(self, positives: Positives) -> Tensor:
        s, y = positives.scores, positives.values
        return y * relu(self.margin - s).square() + (1 - y) * relu(self.margin + s).square()
