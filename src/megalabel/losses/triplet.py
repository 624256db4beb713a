"""Triplet loss with online hard negatives, and hard positives if asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import torch
from pydantic import PositiveInt, model_validator
from torch.nn.functional import relu

from megalabel.losses.base import NONE, RowLoss, choose, require, row_sum, shares, spread
from megalabel.losses.bce import LossWithBCE
from megalabel.losses.streaming.streams import TopStream
from megalabel.ranks import ALONE
from megalabel.settings import PositiveFloat

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives, Stream


class TripletSettings(LossWithBCE):
    """Settings of :class:`Triplet`."""

    kind: Literal["triplet"]
    margin: PositiveFloat = 0.3
    k: PositiveInt = 10  # hardest negatives of each row
    positives: PositiveInt | None = None  # hardest positives of each row; None: all
    weights: Literal["score", "violators", "hinge"] = "score"
    temperature: PositiveFloat = 0.1  # of the weights; that of the scores is the head's

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        self.require(self.k > 1, "weights temperature", "k is 1, and one negative has all the weight")
        self.require(self.weights != "hinge", "temperature", "weights is hinge")
        return self

    def row_loss(self) -> Triplet:
        """Return the loss of this kind."""
        return Triplet(
            margin=self.margin,
            k=self.k,
            temperature=self.temperature,
            positives=self.positives,
            weights=self.weights,
        )

    def row_cost(self) -> tuple[int, int]:
        """Return one pass and one product: the gradient has a few cells."""
        return 1, 1


@dataclass(frozen=True)
class Triplet(RowLoss):
    r"""Keep each positive a margin above the k hardest negatives of its row, weighted by hardness.

    With H_i the k highest negatives of row i, h_pn = max(0, s_in - s_ip + m) their hinge values, and V_ip those of
    them that violate the margin of positive p (h_pn > 0),

    .. math::
        \ell_i = \sum_{p \in P_i} a_{ip} L_{ip}, \qquad L_{ip} = \sum_{n \in H_i} \omega_{ipn} h_{pn}

    ``weights`` says what the softmax omega is taken of:

    - ``score``: s_in / tau over all of H_i, but 0 in place of s_in / tau outside V_ip: easy negatives take their
      share of the weight and add nothing. Stage 1 of NGAME (Dahiya et al. 2023, "NGAME: negative mining-aware
      mini-batching for extreme classification"), as in its code, with m = 0.3, k = 10, tau = 0.1.
    - ``violators``: s_in / tau over V_ip only. Stage 1 of DEXA (Dahiya et al. 2023, "Deep encoders with auxiliary
      parameters for extreme classification"), as in its code, with the same numbers.
    - ``hinge``: h_pn over V_ip only, without temperature. Stage 2 of both, with m = 0.2, k = 5 and
      ``positives`` = 3.

    By default P_i are all positives of the row, and a = y / sum(y). With ``positives`` = c they are the c lowest of
    them, and a = y / c: a row with fewer positives counts less, as in the code. (The code also divides by k; that
    factor belongs to the learning rate.) The derivatives are

    .. math::
        \partial L_p / \partial s_n = \omega_n (1 + (h_n - L_p) / \tau) \text{ in } V_p, \text{ else } 0, \qquad
        \partial L_p / \partial s_p = - \sum_{n \in V_p} \omega_n

    for ``score`` and ``violators``, and for ``hinge``

    .. math::
        \partial L_p / \partial s_n = \omega_n (1 + h_n - L_p) \text{ in } V_p, \text{ else } 0, \qquad
        \partial L_p / \partial s_p = -1 \text{ if } V_p \neq \emptyset \text{ else } 0.

    The weights carry gradient, as in the code, so a negative far easier than the hardest may
    be pushed up a little while the hardest is pushed down.

    Takes cosines with temperature 1. A row without positives, or without a negative within
    the margin, gives 0. A row may have fewer than k negatives. Among equal scores at rank k
    the choice is arbitrary.

    Example:
        >>> import torch
        >>> from megalabel.losses import Triplet
        >>> Triplet(k=1)(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1.0, 0, 0]]))
        tensor(0.2000)
    """

    margin: float = 0.3
    k: int = 10
    temperature: float = 0.1
    positives: int | None = None
    weights: str = "score"

    raises_positives = True
    takes_log_q = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.k >= 1, f"k is {self.k}", "choose 1 negative or more")
        fits = self.positives is None or self.positives >= 1
        require(fits, f"positives is {self.positives}", "choose 1 positive or more, or None for all")
        require(self.temperature > 0, f"temperature is {self.temperature}", "choose a number above 0")
        choose("weights", self.weights, ("score", "violators", "hinge"))

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        return TopStream(self, positives, ranks, self.k, self._share(positives, ranks))

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        top = negatives.topk(min(self.k, negatives.shape[1]), 1).values
        return row_sum(positives, self._from_top(top, positives, self._share(positives, ALONE))[0])

    def _share(self, positives: Positives, ranks: Ranks) -> Tensor:
        if self.positives is None:
            return shares(positives, ranks)
        return positives.values * hardest(positives, ranks, self.positives) / self.positives

    def _from_top(self, top: Tensor, positives: Positives, share: Tensor) -> tuple[Tensor, Tensor]:
        scores = spread(positives, top)
        gap = relu(scores - positives.scores[:, None] + self.margin)
        violates = gap > 0
        logits = gap if self.weights == "hinge" else scores / self.temperature
        if self.weights == "score":
            logits = logits.masked_fill(~violates, 0.0).masked_fill(scores == NONE, NONE)
        else:
            logits = logits.masked_fill(~violates, NONE)
        logits = logits.masked_fill(~violates.any(1, keepdim=True), 0.0)
        terms = (logits.softmax(1) * gap).sum(1)
        return share * terms, top.new_zeros(top.shape)


@torch.no_grad()
def hardest(positives: Positives, ranks: Ranks, count: int) -> Tensor:
    """Return [n] bool, True for the ``count`` lowest positives of each row over all ranks; ties go to the first rank.

    >>> from megalabel.ranks import ALONE
    >>> from megalabel.types import Positives
    >>> rows, scores = torch.tensor([0, 1, 0, 0]), torch.tensor([0.3, 0.9, 0.1, 0.2])
    >>> hardest(Positives(rows, rows, scores, scores, (2, 4)), ALONE, 2).tolist()
    [False, True, True, True]
    """
    rows, scores = positives.rows, positives.scores
    order = torch.argsort(scores, stable=True)
    order = order.index_select(0, torch.argsort(rows.index_select(0, order), stable=True))  # by row, then by score
    counts = torch.bincount(rows, minlength=positives.shape[0])
    first = (counts.cumsum(0) - counts).index_select(0, rows.index_select(0, order))
    place = torch.empty_like(rows).index_copy_(0, order, torch.arange(len(rows), device=rows.device) - first)
    among = place < count
    lowest = scores.new_full((positives.shape[0] * count,), -NONE)
    lowest.index_copy_(0, (rows * count + place)[among], scores[among])
    lowest = lowest.view(-1, count)
    world, size = ranks.world, len(lowest)
    everywhere = ranks.gather(lowest, [size] * world).view(world, size, count).transpose(0, 1).reshape(size, -1)
    best = torch.argsort(everywhere, dim=1, stable=True)[:, :count]
    chosen = torch.zeros_like(everywhere, dtype=torch.bool).scatter_(1, best, True)
    own = chosen[:, ranks.rank * count : (ranks.rank + 1) * count]
    return among & own.reshape(-1).index_select(0, rows * count + place.clamp_max(count - 1))
