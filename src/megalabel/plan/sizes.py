"""The size of a data set, as far as memory and time of a training depend on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from megalabel.data.hold_out import held_out_size
from megalabel.encoders.text_size import TextSize
from megalabel.errors import SettingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from megalabel.data.dataset import Dataset

__all__ = ["Sizes"]


@dataclass(frozen=True)
class Sizes:
    """A data set, as far as memory and time depend on it.

    >>> Sizes(points=1000, labels=100, labels_per_point=3.0).pairs
    3000.0
    """

    points: int  # train, validation included
    labels: int
    labels_per_point: float = 5.0
    query: TextSize = field(default_factory=TextSize.of_tokens)
    label: TextSize = field(default_factory=TextSize.of_tokens)
    val: int | None = None  # those of them in val; None: the recipe says how many are held out of train
    tests: int = 0  # test points
    filtered: bool = False  # some pairs of train are neither right nor wrong

    def __post_init__(self) -> None:
        for name in ("points", "labels", "labels_per_point"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(f"{name} is {getattr(self, name)}", remedy="it must be above 0")
        if self.labels_per_point > self.labels:
            what = f"labels_per_point is {self.labels_per_point:g}, more than the {self.labels:,} labels there are"
            raise SettingError(what, remedy="give the mean number of labels per point")

    @property
    def pairs(self) -> float:
        """Relevant pairs of point and label."""
        return self.points * self.labels_per_point

    def validation(self, share: float) -> int:
        """Return the number of validation rows, given the share of train that is held out without a val part."""
        if self.val is not None:
            return self.val
        return held_out_size(self.points, share) if share else 0

    @classmethod
    def of(cls, data: Dataset, tokenizer: Tokenizer | None = None) -> Sizes:
        """Measure a data set; lengths of texts from a sample."""
        parts = [data.train] if data.val is None else [data.train, data.val]
        points = sum(len(part) for part in parts)
        return cls(
            points=points,
            labels=len(data.labels),
            labels_per_point=max(1, sum(part.targets.nnz for part in parts)) / points,
            query=TextSize.of(data.train.texts, tokenizer),
            label=TextSize.of(data.labels.texts, tokenizer),
            val=None if data.val is None else len(data.val),
            tests=len(data.test),
            filtered=len(data.train.filter) > 0,
        )
