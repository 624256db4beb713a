"""Probabilistic contrastive loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveInt

from megalabel.losses.base import RowLoss, require, row_sum
from megalabel.losses.bce import LossWithBCE
from megalabel.losses.streaming.streams import SeparableStream, TopStream
from megalabel.settings import NonNegative, PositiveFloat

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives, Stream


class ProbabilisticContrastiveSettings(LossWithBCE):
    """Settings of :class:`ProbabilisticContrastive`; the defaults are those of SiameseXML's second stage."""

    kind: Literal["probabilistic_contrastive"]
    c: Annotated[float, Field(gt=0, lt=1)] = 0.75
    d: PositiveFloat = 3.0
    k: PositiveInt | None = None  # hardest negatives of each row; None: all
    threshold: NonNegative = 0.05  # smaller terms of negatives are left out
    scaled: bool = True  # by 1/d

    def row_loss(self) -> ProbabilisticContrastive:
        """Return the loss of this kind."""
        return ProbabilisticContrastive(c=self.c, d=self.d, k=self.k, threshold=self.threshold, scaled=self.scaled)

    def row_cost(self) -> tuple[int, int]:
        """Return one pass and three products; with ``k``, one product and a few cells."""
        return 1, 3 if self.k is None else 1


@dataclass(frozen=True)
class ProbabilisticContrastive(RowLoss):
    r"""Fit the model P(relevant | cosine) = c exp(d (s - 1)) by maximum likelihood.

    .. math::
        \ell_i = \frac{1}{d} \Bigl[ \sum_{p \in P_i} y_{ip} \bigl( d (1 - s_{ip}) - \log c \bigr)
               - \sum_{n \notin P_i} \log \bigl( 1 - c\, e^{d (s_{in} - 1)} \bigr) \Bigr]

        \partial / \partial s_p = - y_{ip}, \qquad
        \partial / \partial s_n = \frac{c\, e^{d (s_n - 1)}}{1 - c\, e^{d (s_n - 1)}}

    Dahiya et al. 2021, "SiameseXML: Siamese networks meet extreme classifiers with 100M
    labels", in the two forms of its code. The defaults are those of stage 2: all negatives
    except those whose term is below ``threshold``. Stage 1 is
    ``ProbabilisticContrastive(c=0.9, d=1.5, k=2, threshold=0.0, scaled=False)``: only the
    k highest negatives of each row, without the factor 1/d.

    Takes cosines with temperature 1. The formula has a pole at s = 1 - log(c)/d, above
    every cosine; scores more than halfway from 1 to the pole are clamped to that point and
    get no gradient. Summed over labels, then averaged over rows. A row without positives
    keeps its negative terms. Soft targets y in (0, 1] weight the positive term.

    Example:
        >>> import torch
        >>> from megalabel.losses import ProbabilisticContrastive
        >>> ProbabilisticContrastive()(torch.tensor([[1.0, 0.5]]), torch.tensor([[1.0, 0.0]]))
        tensor(0.1569)
    """

    c: float = 0.75
    d: float = 3.0
    k: int | None = None
    threshold: float = 0.05
    scaled: bool = True

    raises_positives = True
    lowers_negatives = True
    takes_log_q = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.c < 1, f"c is {self.c}", "choose a number between 0 and 1")
        require(self.d > 0, f"d is {self.d}", "choose a number above 0")
        require(self.k is None or self.k >= 1, f"k is {self.k}", "choose 1 negative or more, or None for all")
        require(self.threshold >= 0, f"threshold is {self.threshold}", "choose 0 or more")

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        if self.k is None:
            return SeparableStream(self, positives, ranks)
        return TopStream(self, positives, ranks, self.k, positives.values)

    @property
    def _scale(self) -> float:
        return 1 / self.d if self.scaled else 1.0

    @property
    def _ceiling(self) -> float:
        """Halfway between cosine 1 and the pole."""
        return 1 - math.log(self.c) / (2 * self.d)

    @property
    def _floor(self) -> float:
        """Score below which a negative's term is under the threshold; -inf without a threshold."""
        if self.threshold == 0:
            return -math.inf
        return 1 + math.log(-math.expm1(-self.threshold / self._scale) / self.c) / self.d

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        if self.k is not None:
            negatives = negatives.topk(min(self.k, negatives.shape[1]), 1).values
        return self._negative(negatives).sum(1) + row_sum(positives, self._positive(positives))

    def _negative(self, scores: Tensor) -> Tensor:
        chance = self.c * (self.d * (scores.clamp(max=self._ceiling) - 1)).exp()
        return -self._scale * (-chance.masked_fill(scores < self._floor, 0.0)).log1p()

    def _negative_sum(self, block: Tensor, scratch: Tensor) -> Tensor:
        return self._negative(block).sum(1)

    def _negative_gradient(self, scores: Tensor) -> Tensor:
        away = (scores < self._floor) | (scores > self._ceiling)
        chance = scores.clamp_(max=self._ceiling).sub_(1).mul_(self.d).exp_().mul_(self.c)
        return chance.div_(1 - chance).mul_(self._scale * self.d).masked_fill_(away, 0.0)

    def _positive(self, positives: Positives) -> Tensor:
        far = self.d * (1 - positives.scores.clamp(max=self._ceiling)) - math.log(self.c)
        return positives.values * self._scale * far

    def _from_top(self, top: Tensor, positives: Positives, share: Tensor) -> tuple[Tensor, Tensor]:
        return self._positive(positives), self._negative(top)
