"""Label frequencies of the training data, kept with a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from megalabel.model.train_rows import TrainRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset

__all__ = ["LabelStats"]


@dataclass(frozen=True)
class LabelStats:
    """Label counts of train + val, the constants of their propensities, and access to the training texts."""

    counts: NDArray[np.int64]  # [L]
    points: int
    propensity: tuple[float, float]  # A, B
    train: Callable[[], TrainRows] | None = None  # returns the training texts; None if they were not saved
    trained: int | None = None  # number of trained labels, the first ones; None if all are, or it is not known

    @classmethod
    def of(cls, data: Dataset) -> LabelStats:
        """Return the frequencies of a data set."""
        rows = TrainRows.of(data)
        return cls(data.counts, data.points, data.propensity, lambda: rows)

    def grown(self, labels: int) -> LabelStats:
        """Return the same with more labels, which have no training points."""
        trained = len(self.counts) if self.trained is None else self.trained
        return replace(self, counts=np.concatenate([self.counts, np.zeros(labels, dtype=np.int64)]), trained=trained)
