"""Soft top-k: memberships between 0 and 1 that sum to k."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import PositiveInt
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from megalabel.losses.base import RowLoss, check_mask, find_positives, require, row_sum, shares, split, spread
from megalabel.losses.bce import LossWithBCE
from megalabel.losses.streaming.streams import leaf, no_cells
from megalabel.losses.streaming.threshold import Threshold
from megalabel.ranks import ALONE, Ranks
from megalabel.settings import PositiveFloat

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Positives, Stream, Targets

CELLS = 1 << 18  # cells of a column chunk of the plain form: 1 MiB of float32, which stays in cache
WIDTH = 4096  # widest chunk: the search knows the highest scores of each chunk only


class SoftTopKSettings(LossWithBCE):
    """Settings of :class:`SoftTopK`."""

    kind: Literal["soft_top_k"]
    k: PositiveInt | Literal["positives"] = 5
    alpha: PositiveFloat = 2.0

    def row_loss(self) -> SoftTopK:
        """Return the loss of this kind."""
        return SoftTopK(k=self.k, alpha=self.alpha)

    def row_cost(self) -> tuple[int, int]:
        """Return two passes for the threshold and one for the gradient."""
        return 3, 5


@dataclass(frozen=True)
class SoftTopK(RowLoss):
    r"""Push every positive into the soft top k of its row.

    .. math::
        \pi_{il} = \sigma(\alpha (s_{il} + t_i)), \quad t_i \text{ such that } \sum_l \pi_{il} = k, \qquad
        \ell_i = - \sum_{p \in P_i} a_{ip} \log \pi_{ip}

    with a = y / sum(y). Gupta et al. 2024 (DEXML), section 4.3, which
    credits the operator to T. Ahle. t is solved for each row, it is not a setting; its
    derivative follows from the constraint. With v = pi (1 - pi) and V = sum(v),

    .. math::
        \partial t / \partial s_j = - v_j / V, \qquad
        \partial \ell_i / \partial s_j = -\alpha a_j (1 - \pi_j) + \frac{v_j}{V} \sum_p \alpha a_p (1 - \pi_p)

    A small k favours precision at the top, a large k favours recall. ``k="positives"`` uses
    the number of positives of the row. If a row has more positives than k, the constraint
    makes them compete, and the highest are pushed down: sample at most k and mask the
    rest, or choose a larger k. If k is at least the number of cells of the row, all
    memberships are 1 and the row gives 0. Masked cells are left out of the sum. Rows without
    positives give 0. Soft targets y in (0, 1] are weights y / sum(y). ``log_q`` is subtracted
    from the scores of negatives before the search for the threshold.

    The search takes a few passes over the scores (see ``streaming/threshold.py``), starts
    from a bracket that holds for any number of labels, and is exact to the precision of the
    type: in float32 the memberships sum to k within 1e-4 over 1.3 million labels.

    Args:
        k: number of labels in the soft top k; an int, or "positives".
        alpha: slope of the sigmoid on scores already divided by the temperature.

    Example:
        >>> import torch
        >>> from megalabel.losses import SoftTopK
        >>> scores = torch.tensor([[2.0, 0.5, -1.0, 1.0, 0.0]])
        >>> SoftTopK(2).memberships(scores)
        tensor([[0.9096, 0.3338, 0.0243, 0.5766, 0.1556]])
        >>> round(SoftTopK(2)(scores, torch.tensor([[1.0, 1, 0, 0, 1]])).item(), 6)
        1.017406
    """

    k: int | str
    alpha: float = 2.0

    lowers_negatives = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = isinstance(self.k, int) and not isinstance(self.k, bool) and self.k >= 1
        require(whole or self.k == "positives", f"k is {self.k!r}", 'choose an int of 1 or more, or "positives"')
        require(self.alpha > 0, f"alpha is {self.alpha}", "choose a number above 0")

    def memberships(
        self, scores: Tensor, targets: Tensor | Targets | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the memberships [B, P] without gradient; each row sums to k, masked cells get 0.

        ``targets`` are only needed for ``k="positives"``.
        """
        shape = (scores.shape[0], scores.shape[1])
        require(targets is not None or self.k != "positives", 'k="positives" needs targets', "pass targets")
        negatives, none = split(scores.detach(), scores.new_zeros(shape), mask)
        counted = none
        if targets is not None:
            allowed = None if mask is None else check_mask(mask, shape)
            counted = find_positives(targets, shape, negatives, allowed)
        search = solve(negatives, none, self._row_k(counted, ALONE), self.alpha)
        return search.membership(negatives, torch.empty_like(negatives)).to(scores.dtype)

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        return _SoftTopKStream(self, positives, ranks)

    def _row_k(self, positives: Positives, ranks: Ranks) -> Tensor:
        """Return k of each row [B]."""
        if self.k != "positives":
            return positives.values.new_full((positives.shape[0],), float(self.k))
        return ranks.sum(row_sum(positives, torch.ones_like(positives.values)))

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        k = self._row_k(positives, ALONE)
        theta, centre = _Theta.apply(negatives, positives.scores, positives, k, self.alpha)  # type: ignore[no-untyped-call]
        return row_sum(positives, self._from_theta(theta, centre, positives, shares(positives)))

    def _from_theta(self, theta: Tensor, centre: Tensor, positives: Positives, share: Tensor) -> Tensor:
        x = self.alpha * (positives.scores - spread(positives, centre)) + spread(positives, theta)
        return -share * logsigmoid(x)


class _SoftTopKStream:
    """The passes of the threshold search, then one for the gradient."""

    separable = False
    sparse = False

    def __init__(self, loss: SoftTopK, positives: Positives, ranks: Ranks) -> None:
        self._loss, self._positives, self._ranks = loss, positives, ranks
        self._share = shares(positives, ranks)
        self._search = Threshold(loss._row_k(positives, ranks), loss.alpha, positives, ranks)

    def update(self, block: Tensor, start: int) -> None:
        """Measure the rows, or try thresholds."""
        self._search.update(block)

    def more(self) -> bool:
        """Ask for passes until every row is solved."""
        return self._search.more()

    def finish(self) -> Tensor:
        """Return the row losses; keep the slopes for both gradients."""
        search, positives = self._search, self._positives
        theta, scores = leaf(search.theta), leaf(positives.scores)
        with torch.enable_grad():
            inside = replace(positives, scores=scores)
            terms = self._loss._from_theta(theta, search.centre, inside, self._share)
            slope, direct = torch.autograd.grad(terms.sum(), (theta, scores))
        self._slope = _per_score(self._ranks.sum(slope), search.slope, self._loss.alpha)[:, None]
        self._gradient = direct + _positive_pull(search, positives, self._loss.alpha, self._slope[:, 0])
        return self._ranks.sum(row_sum(positives, terms.detach()))

    def positive_gradient(self) -> Tensor:
        """Gradient for the positives."""
        return self._gradient

    def block_gradient(self, block: Tensor) -> Tensor:
        """Return slope x pi (1 - pi), in place."""
        p = self._search.membership(block, block)
        return torch.addcmul(p, p, p, value=-1, out=p).mul_(self._slope)

    def sparse_gradient(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return no cells: the whole gradient is in the blocks."""
        return no_cells()


def _per_score(gradient: Tensor, slope: Tensor, alpha: float) -> Tensor:
    """Return the factor of pi (1 - pi) in the gradient of the scores, from the gradient of theta."""
    return torch.where(slope > 0, -alpha * gradient / slope.clamp_min(torch.finfo(slope.dtype).tiny), 0.0)


def _positive_pull(search: Threshold, positives: Positives, alpha: float, factor: Tensor) -> Tensor:
    """Return the gradient of the positives through the threshold."""
    x = alpha * (positives.scores.detach() - spread(positives, search.centre)) + spread(positives, search.theta)
    return spread(positives, factor) * (x.sigmoid() * (-x).sigmoid())


def solve(negatives: Tensor, positives: Positives, k: Tensor, alpha: float) -> Threshold:
    """Return the solved thresholds of a whole matrix, in column chunks that stay in cache."""
    search = Threshold(k, alpha, positives, ALONE)
    width = min(WIDTH, max(64, CELLS // max(1, negatives.shape[0])))
    more = True
    while more:
        for block in torch.split(negatives, width, 1) if negatives.numel() else ():
            search.update(block)
        more = search.more()
    return search


class _Theta(torch.autograd.Function):
    """The threshold as a function of the scores, by the implicit derivative."""

    @staticmethod
    def forward(
        ctx: Any, negatives: Tensor, scores: Tensor, positives: Positives, k: Tensor, alpha: float
    ) -> tuple[Tensor, Tensor]:
        search = solve(negatives, positives, k, alpha)
        ctx.save_for_backward(negatives)
        ctx.search, ctx.positives, ctx.alpha = search, positives, alpha
        theta, centre = search.theta.clone(), search.centre.clone()  # an output held by ctx would never be freed
        ctx.mark_non_differentiable(centre)
        return theta, centre

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (negatives,) = ctx.saved_tensors
        factor = _per_score(gradient, ctx.search.slope, ctx.alpha)
        p = ctx.search.membership(negatives, torch.empty_like(negatives))
        pull = torch.addcmul(p, p, p, value=-1, out=p).mul_(factor[:, None])
        return pull, _positive_pull(ctx.search, ctx.positives, ctx.alpha, factor), None, None, None
