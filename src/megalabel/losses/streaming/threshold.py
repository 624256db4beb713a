"""Find the threshold of the soft top-k operator in a few passes over blocks of scores.

For each row we solve for theta with sum_l sigma(x_l + theta) = k, where x_l = alpha (s_l - centre).
The centre moves to the threshold during the search, so that float32 loses no precision
with large scores: s - centre is exact where it matters and theta stays small.

Pass 1 measures each row: number of cells, highest and lowest score, and for each block of
columns its four highest scores and, over its other c cells, R = sum e^x and R2 = sum e^2x.
The root lies between logit(k/n) - alpha (max - centre) and logit(k/n) - alpha (min - centre),
where all cells at the maximum (minimum) would put it. The four highest of a block and the
positives count exactly; the other cells of the block together are bounded on both sides,

    R^2/R2 sigma(theta + log(R2/R))  <=  g(theta)  <=  min(R e^theta, c sigma(fourth + theta)),

left by Jensen's inequality on the convex e -> 1/(1+e) weighted by e = e^(x+theta), right
because sigma(x) <= e^x. The roots of the two bounds enclose the threshold, usually
closely. Pass 2 evaluates the sum at both ends of this bracket, and in its middle if it is
wide. If the bracket is then so narrow that the cubic through its ends is exact to the type,
the row is solved; otherwise each further pass tries three thresholds: that cubic, a Newton
step in log space from the better end, and the midpoint, so that the bracket at least
halves. Float32 usually takes two passes in total, float64 three or four.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from megalabel.losses.base import NONE, finite, row_max, row_sum, spread
from megalabel.losses.streaming.streams import Scratch, wide

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives

OPEN = 1e30  # theta of a row whose memberships are all 1: k is at least the number of cells
PASSES = 24  # upper bound, not reached in practice: 24 halvings of the bracket
TOPS = 4  # highest scores of a block that are known exactly
SLACK = 1e-4  # added to both ends of the bracket, for the rounding of the sums of pass 1
TINY = 1e-300


class Threshold:
    """Row state of the search: call ``update`` with each block of negatives and ``more`` after each pass.

    Args:
        k: [B] target sum of each row; 0 skips the row.
        alpha: slope of the sigmoid.
        positives: the positive cells, with scores.
        ranks: the processes that share the labels.

    At the end ``centre`` and ``theta`` [B] define the memberships
    sigma(alpha (s - centre) + theta), and ``slope`` [B] is the sum of p (1 - p), 0 for rows
    where the threshold does not move with the scores.
    """

    def __init__(self, k: Tensor, alpha: float, positives: Positives, ranks: Ranks) -> None:
        self._k, self._alpha, self._positives, self._ranks = k.to(wide(k)), alpha, positives, ranks
        self._scores = positives.scores.detach()
        self._dtype = self._scores.dtype
        self._scratch, self._spare = Scratch(), Scratch()
        self._passes = 0
        self._low = self._scores.new_full((positives.shape[0],), -NONE)
        self._cells = torch.zeros_like(self._k)
        self._blocks: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # highest [4, B], other cells, R, R2

    def update(self, block: Tensor) -> None:
        """Process one block of negatives, -inf where a cell takes no part."""
        if self._passes == 0:
            self._measure(block)
        else:
            self._evaluate(block)

    def more(self) -> bool:
        """End a pass; True while some row is not solved."""
        self._passes += 1
        if self._passes == 1:
            return self._open_bracket()
        return self._close_in()

    def membership(self, block: Tensor, out: Tensor) -> Tensor:
        """Write sigma(alpha (s - centre) + theta) of a block into ``out``, which may be the block."""
        torch.sub(block, self.centre[:, None], out=out)
        return torch.add(self.theta[:, None], out, alpha=self._alpha, out=out).sigmoid_()

    # ------------------------------------------------------------------ pass 1

    def _measure(self, block: Tensor) -> None:
        tops, places = block.topk(min(TOPS, block.shape[1]), 1)
        lowest = block.amin(1)
        cells = torch.full_like(self._cells, block.shape[1])
        holes = (lowest == NONE).nonzero()[:, 0]
        if holes.numel():
            part = block.index_select(0, holes)
            absent = part == NONE
            cells.index_add_(0, holes, -absent.sum(1).to(cells.dtype))
            lowest = lowest.index_copy(0, holes, part.masked_fill_(absent, -NONE).amin(1))
        self._cells += cells
        self._low = torch.minimum(self._low, lowest)
        below = torch.sub(block, finite(tops[:, -1:]), out=self._scratch.like(block)).mul_(self._alpha).exp_()
        rest = below.scatter_(1, places, 0.0).sum(1)
        others = (cells - tops.shape[1]).clamp_min_(0).to(self._dtype)
        self._blocks.append((tops.T.contiguous(), others, rest, below.square_().sum(1)))

    def _open_bracket(self) -> bool:
        positives, ranks, alpha = self._positives, self._ranks, self._alpha
        tops = [row_max(positives, self._scores), *(block[0][0] for block in self._blocks)]
        highest = ranks.max(torch.stack(tops).amax(0)).to(self._k.dtype)
        lowest = -ranks.max(torch.maximum(-self._low, row_max(positives, -self._scores))).to(self._k.dtype)
        cells = ranks.sum(self._cells + row_sum(positives, torch.ones_like(self._scores)))
        self._live = (self._k > 0) & (self._k < cells)
        self.centre = finite(highest).to(self._dtype)
        middle = torch.logit(torch.where(self._live, self._k / cells.clamp_min(1), 0.5))
        self._lo = middle - alpha * (finite(highest) - self.centre)
        self._hi = torch.where(self._live, middle - alpha * (lowest - self.centre), self._lo)
        self._ends = torch.stack([self._lo, self._hi])
        self._narrow()
        self._known = torch.zeros(2, *self._k.shape, dtype=torch.bool, device=cells.device)  # ends with a measured sum
        self._log = torch.zeros(2, *self._k.shape, dtype=cells.dtype, device=cells.device)  # log of that sum
        self._rate = torch.ones_like(self._log)  # its derivative by theta
        self.theta = torch.where(self._live | (self._k <= 0), 0.0, OPEN).to(self._dtype)
        self.slope = torch.zeros_like(self.theta)
        self._recentre()
        ends = [self._lo, self._hi]
        self._try(ends if bool((self._narrow_enough() | ~self._live).all()) else [*ends, (self._lo + self._hi) / 2])
        return bool(self._live.any())

    def _narrow(self) -> None:
        """Move both ends of the bracket to the roots of the two bounds."""
        nothing = torch.zeros_like(self.centre)
        blocks = self._blocks or [(torch.full_like(nothing, NONE)[None], nothing, nothing, nothing)]
        self._blocks = []
        tops = self._frame(torch.cat([block[0] for block in blocks]))
        last = self._frame(torch.stack([block[0][-1] for block in blocks]))
        others, rest, rest2 = (torch.stack(column) for column in list(zip(*blocks, strict=True))[1:])
        tiny, eps = torch.finfo(self._dtype).tiny, torch.finfo(self._dtype).eps
        ratio = torch.where(rest2 > tiny / eps, rest2 / rest.clamp_min(tiny), 1.0).clamp_(max=1.0)  # 1 is always safe
        many, level = rest / ratio, last + ratio.log()
        ceiling = last + (rest + others * tiny).log()  # a cell whose exponential vanished is below tiny
        x = self._alpha * (self._scores - spread(self._positives, self.centre))

        def total(theta: Tensor, cells: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
            p, m = (x + spread(self._positives, theta)).sigmoid_(), (tops + theta).sigmoid_()
            value = row_sum(self._positives, p) + m.sum(0) + cells.sum(0)
            rate = row_sum(self._positives, p - p * p) + m.addcmul_(m, m, value=-1).sum(0) + rates.sum(0)
            both = self._ranks.sum(torch.stack([value, rate]).to(self._k.dtype))
            return both[0], both[1]

        def at_most(theta: Tensor) -> tuple[Tensor, Tensor]:
            theta = theta.to(self._dtype)
            mass = (ceiling + theta).clamp_(max=80.0).exp_()
            p = (last + theta).sigmoid_()
            capped = others * p
            return total(theta, torch.minimum(mass, capped), torch.where(mass < capped, mass, capped * (1 - p)))

        def at_least(theta: Tensor) -> tuple[Tensor, Tensor]:
            theta = theta.to(self._dtype)
            p = (level + theta).sigmoid_()
            cells = many * p
            return total(theta, cells, cells * (1 - p))

        ends = self._lo, self._hi
        lo, hi = _bracket(at_most, self._k, *ends)[0], _bracket(at_least, self._k, *ends)[1]
        self._lo = torch.maximum(ends[0], lo - SLACK - 16 * eps * lo.abs())
        self._hi = torch.maximum(self._lo, torch.minimum(ends[1], hi + SLACK + 16 * eps * hi.abs()))

    def _frame(self, scores: Tensor) -> Tensor:
        return scores.sub_(self.centre).mul_(self._alpha)

    def _recentre(self) -> None:
        """Move the centre of unsolved rows to the middle of their bracket, rounded to the type of the scores."""
        middle = (self._lo + self._hi) / 2
        centre = torch.where(self._live, self.centre - middle / self._alpha, self.centre).to(self._dtype)
        moved = self._alpha * (centre.to(middle.dtype) - self.centre)
        self._lo, self._hi, self._ends = self._lo + moved, self._hi + moved, self._ends + moved
        self.centre = centre
        self._x = self._alpha * (self._scores - spread(self._positives, centre))

    # ----------------------------------------------------------- passes 2 and on

    def _try(self, thetas: list[Tensor]) -> None:
        """Set the thresholds of the next pass, rounded as the blocks will see them."""
        self._thetas = torch.stack(thetas).to(self._dtype)
        self._sums = torch.zeros_like(self._thetas, dtype=self._k.dtype)
        self._slopes = torch.zeros_like(self._sums)

    def _evaluate(self, block: Tensor) -> None:
        below = torch.sub(block, self.centre[:, None], out=self._scratch.like(block))
        p = self._spare.like(block)
        for j, theta in enumerate(self._thetas):
            torch.add(theta[:, None], below, alpha=self._alpha, out=p).sigmoid_()
            self._sums[j] += p.sum(1)
            self._slopes[j] += torch.addcmul(p, p, p, value=-1, out=p).sum(1)

    def _close_in(self) -> bool:
        for j, theta in enumerate(self._thetas):
            p = (self._x + spread(self._positives, theta)).sigmoid_()
            self._sums[j] += row_sum(self._positives, p)
            self._slopes[j] += row_sum(self._positives, p - p * p)
        sums, slopes = self._ranks.sum(self._sums), self._ranks.sum(self._slopes)
        thetas = self._thetas.to(sums.dtype)
        self._accept(thetas, sums, slopes)
        for j in range(len(thetas)):
            self._move_end(0, sums[j] <= self._k, thetas[j], sums[j], slopes[j])
            self._move_end(1, sums[j] >= self._k, thetas[j], sums[j], slopes[j])
        # where rounding has put the root outside the narrow bracket, the wide one still holds it
        self._lo = torch.where(self._known[0], self._lo, self._ends[0])
        self._hi = torch.where(self._known[1], self._hi, self._ends[1])
        self._interpolate()
        if not bool(self._live.any()):
            return False
        self._recentre()
        middle = (self._lo + self._hi) / 2
        self._try([self._inside(self._cubic(), middle), self._inside(self._newton(), middle), middle])
        return True

    def _accept(self, thetas: Tensor, sums: Tensor, slopes: Tensor) -> None:
        """Find the best threshold of each row; settle the rows where it is as exact as the type allows."""
        eps = torch.finfo(self._dtype).eps
        error, best = (sums - self._k).abs().min(0)
        theta, total, slope = (part.gather(0, best[None])[0] for part in (thetas, sums, slopes))
        step = ((total - self._k) / slope.clamp_min(TINY)).clamp(-1, 1)
        settled = (error <= 32 * eps * self._k) | (self._hi - self._lo <= 2 * eps * (1 + theta.abs()))
        if self._passes >= PASSES:
            settled = torch.ones_like(settled)
        self._settle(settled, theta - torch.where(slope > eps * error, step, 0.0), slope)

    def _interpolate(self) -> None:
        """Settle the rows whose bracket is so narrow that theta and slope follow from its two ends."""
        part = self._part()
        slope = self._rate * self._log.exp()
        self._settle(self._narrow_enough() & self._known.all(0), self._cubic(), slope[0] + part * (slope[1] - slope[0]))

    def _narrow_enough(self) -> Tensor:
        return self._hi - self._lo <= math.sqrt(8 * torch.finfo(self._dtype).eps)

    def _settle(self, rows: Tensor, theta: Tensor, slope: Tensor) -> None:
        now = self._live & rows
        self.theta = torch.where(now, theta, self.theta).to(self._dtype)
        self.slope = torch.where(now, slope, self.slope).to(self._dtype)
        self._live &= ~rows

    def _move_end(self, end: int, fits: Tensor, theta: Tensor, total: Tensor, rate: Tensor) -> None:
        """Move one end of the bracket (0 low, 1 high) to a measured threshold that is nearer the root."""
        now = self._lo if end == 0 else self._hi
        nearer = theta >= now if end == 0 else theta <= now
        moves = fits & (nearer | ~self._known[end])
        total = total.clamp_min(TINY)
        rounding = (
            4 * torch.finfo(self._dtype).eps * theta.abs()
        )  # far from the centre the sum belongs to a nearby theta
        if end == 0:
            self._lo = torch.where(moves, theta - rounding, self._lo)
        else:
            self._hi = torch.where(moves, theta + rounding, self._hi)
        self._known[end] |= moves
        self._log[end] = torch.where(moves, total.log(), self._log[end])
        self._rate[end] = torch.where(moves, (rate / total).clamp_min(TINY), self._rate[end])

    def _part(self) -> Tensor:
        """How far log k lies from the log of the sum at the low end to that at the high end, 0 to 1."""
        width = (self._log[1] - self._log[0]).clamp_min(TINY)
        return ((self._k.clamp_min(TINY).log() - self._log[0]) / width).clamp_(0, 1)

    def _cubic(self) -> Tensor:
        """Hermite interpolation of theta as a function of the log of the sum, between the ends."""
        u, width = self._part(), self._log[1] - self._log[0]
        a, b = width / self._rate[0], width / self._rate[1]
        rise = self._hi - self._lo
        guess = self._lo + rise * u * u * (3 - 2 * u) + a * u * (1 - u) ** 2 - b * u * u * (1 - u)
        guess = torch.minimum(torch.maximum(guess, self._lo), self._hi)
        return torch.where(self._known.all(0), guess, self._newton())

    def _newton(self) -> Tensor:
        """Newton step on the log of the sum, from the measured end that is nearer to log k."""
        log_k = self._k.clamp_min(TINY).log()
        distance = torch.where(self._known, (self._log - log_k).abs(), float("inf"))
        low = distance[0] <= distance[1]
        start, log, rate = (
            torch.where(low, pair[0], pair[1]) for pair in ((self._lo, self._hi), self._log, self._rate)
        )
        return start + (log_k - log) / rate

    def _inside(self, theta: Tensor, middle: Tensor) -> Tensor:
        return torch.where((theta > self._lo) & (theta < self._hi), theta, middle)


def _bracket(
    bound: Callable[[Tensor], tuple[Tensor, Tensor]], k: Tensor, lo: Tensor, hi: Tensor
) -> tuple[Tensor, Tensor]:
    """Narrow [lo, hi] around the root of an increasing function of theta: Newton in log space, else halving."""
    theta = (lo + hi) / 2
    tiny = torch.finfo(k.dtype).tiny
    for _ in range(40):
        value, rate = bound(theta)
        lo, hi = torch.where(value <= k, theta, lo), torch.where(value >= k, theta, hi)
        step = (k.clamp_min(tiny) / value.clamp_min(tiny)).log() * value / rate.clamp_min(tiny)
        if bool((hi - lo <= SLACK / 10).all()):
            break
        # a little past the root, so that both ends close in on it
        over = theta + step + torch.sign(step) * (SLACK / 100 + 0.01 * step.abs().clamp_max(0.01))
        theta = torch.where((over > lo) & (over < hi), over, (lo + hi) / 2)
    return lo, hi
