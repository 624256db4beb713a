"""Correction for how often a label enters a sampled pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.batching.positives import One, Picker, Some
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

__all__ = ["EntryChance", "RunningLogQ"]


@dataclass(frozen=True, eq=False)
class EntryChance:
    r"""Compute a label's probability to be in a pool of sampled positives.

    .. math:: \log \pi_l, \qquad \pi_l = 1 - (1 - r_l)^B

    where r_l is the probability that a random row picks label l. A loss subtracts log q from
    the scores of negatives only: a frequent label, which is a negative in nearly every batch,
    is then pushed down no more than with all labels in the loss (sampled softmax, Bengio
    and Senécal 2008; here on negatives only). A label that no row picks, but that was mined
    or drawn at random, counts like the rarest label that is picked. The formula holds for
    shuffled batches without further negatives; otherwise use :class:`RunningLogQ`.

    Args:
        rates: [L] r_l.
        batch_size: rows per batch, B.

    >>> chance = EntryChance(np.array([1.0, 0.03, 0.0]), batch_size=32)
    >>> chance.log_q(torch.tensor([0, 1, 2])).exp()
    tensor([1.0000, 0.6227, 0.6227])
    """

    rates: NDArray[np.float64]
    batch_size: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingError(f"batch_size must be at least 1, not {self.batch_size}")

    @classmethod
    def from_targets(cls, targets: csr_matrix, positives: Picker, batch_size: int) -> EntryChance:
        """Return the probability for a way to pick positives, from targets [N, L] without stored zeros.

        With p_il = y_il / sum_m y_im, r_l is the mean over rows of 1 for each positive (:class:`All`: r_l = n_l / N),
        p_il (:class:`One`), min(1, beta p_il) (:class:`Some`; exact where the positives of a row are equally
        relevant) or 1 - (1 - p_il)^beta (:class:`Some` with replacement).
        """
        totals = np.asarray(targets.sum(axis=1), dtype=np.float64).ravel()
        shares = targets.data / np.repeat(totals, np.diff(targets.indptr))
        picks = np.ones_like(shares)
        if isinstance(positives, One):
            picks = shares
        elif isinstance(positives, Some):
            beta = positives.beta
            picks = 1 - (1 - shares) ** beta if positives.replacement else np.minimum(beta * shares, 1.0)
        rates = np.bincount(targets.indices, weights=picks, minlength=targets.shape[1]) / targets.shape[0]
        return cls(np.minimum(rates, 1.0), batch_size)

    @cached_property
    def _rarest(self) -> float:
        positive = self.rates[self.rates > 0]
        if len(positive) == 0:
            raise DataError("no label has a training row, so no label has a chance to enter a pool")
        return float(positive.min())

    def log_q(self, pool: Tensor) -> Tensor:
        """Return log pi [P] of the labels ``pool`` [P]."""
        rates = np.maximum(self.rates[pool.cpu().numpy()], self._rarest)
        with np.errstate(divide="ignore"):  # a label that every row picks: log 0 = -inf, and its probability is 1
            none = self.batch_size * np.log1p(-rates)
        return torch.from_numpy(np.log(-np.expm1(none)).astype(np.float32)).to(pool.device)


@dataclass(eq=False)
class RunningLogQ:
    """Estimate a label's probability to be in a pool by the share of past pools that held it.

    Correct for every order and every source of negatives, after some steps: at the start
    all probabilities are 1, which means no correction. Call :meth:`update` with each pool, then
    :meth:`log_q`.

    Args:
        labels: number of labels L.

    >>> running = RunningLogQ(labels=3)
    >>> for pool in ([0, 1], [0], [0, 2], [0, 1]):
    ...     running.update(torch.tensor(pool))
    >>> running.log_q(torch.tensor([0, 1, 2])).exp()
    tensor([1.0000, 0.5000, 0.2500])
    """

    labels: int
    counts_: NDArray[np.int64] = field(init=False, repr=False)
    steps_: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.counts_ = np.zeros(self.labels, dtype=np.int64)

    def update(self, pool: Tensor) -> None:
        """Count the labels of one pool [P], without duplicates."""
        self.counts_[pool.cpu().numpy()] += 1
        self.steps_ += 1

    def log_q(self, pool: Tensor) -> Tensor:
        """Return log (pools with the label / pools) [P]; a label never seen counts as seen once."""
        counts = np.maximum(self.counts_[pool.cpu().numpy()], 1)
        return torch.from_numpy(np.log(counts / max(self.steps_, 1)).astype(np.float32)).to(pool.device)

    def state(self) -> NDArray[np.int64]:
        """Return what a checkpoint needs: [1 + L] the number of pools, then the counts."""
        return np.concatenate([[self.steps_], self.counts_])

    def restore(self, state: NDArray[np.int64]) -> None:
        """Continue from what :meth:`state` returned."""
        if state.shape != (self.labels + 1,):
            raise DataError(f"the checkpoint counts {len(state) - 1} labels, the data has {self.labels}")
        self.steps_, self.counts_ = int(state[0]), state[1:].astype(np.int64)
