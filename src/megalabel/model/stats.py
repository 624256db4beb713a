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
    """How often each label was seen in train + val, what makes propensities of that, and where the texts are."""

    counts: NDArray[np.int64]  # [L]
    points: int
    propensity: tuple[float, float]  # A, B
    train: Callable[[], TrainRows] | None = None  # gives the texts, where they are kept

    @classmethod
    def of(cls, data: Dataset) -> LabelStats:
        """Take over what a data set knows."""
        rows = TrainRows.of(data)
        return cls(data.counts, data.points, data.propensity, lambda: rows)

    def grown(self, labels: int) -> LabelStats:
        """Return the same with more labels, each as if seen once."""
        return replace(self, counts=np.concatenate([self.counts, np.ones(labels, dtype=np.int64)]))
