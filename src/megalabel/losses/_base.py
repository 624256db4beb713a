"""What the row losses share: the call, the reduction, the shares of the positives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from megalabel.errors import SettingError, nearest
from megalabel.losses._cells import row_sum, split, spread

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Positives, Ranks, Targets

REDUCTIONS = ("mean", "sum", "none", "cells")


def choose(name: str, value: str, valid: tuple[str, ...]) -> None:
    """Stop with the nearest valid word when ``value`` is not one of ``valid``."""
    if value not in valid:
        raise SettingError(f"{name} is {value!r}", remedy=nearest(str(value), valid))


def require(ok: bool, what: str, remedy: str) -> None:
    """Raise :class:`SettingError` unless ``ok``."""
    if not ok:
        raise SettingError(what, remedy=remedy)


def divisor(reduction: str, rows: int, cells: int) -> int:
    """Return what the sum of row losses is divided by, given how many rows and cells take part; never 0."""
    return max(1, {"mean": rows, "sum": 1, "cells": cells}[reduction])


def count_cells(shape: tuple[int, int], mask: Tensor | None) -> int:
    """Return how many cells of a block [B, P] take part."""
    return shape[0] * shape[1] if mask is None else int(mask.expand(shape).sum())


def shares(positives: Positives, ranks: Ranks | None = None, how: str = "mean") -> Tensor:
    """Return the share of each positive in its row's loss [n]: y / sum(y) for ``mean``, y for ``sum``."""
    if how == "sum":
        return positives.values
    total = row_sum(positives, positives.values)
    return positives.values / spread(positives, total if ranks is None else ranks.sum(total))


@dataclass(frozen=True)
class RowLoss(ABC):
    """A loss that is a number per row, reduced over rows; subclasses define ``_rows`` and ``begin``.

    ``reduction`` is the ``mean`` over rows, their ``sum``, ``none`` of these, or their sum divided by the
    number of ``cells`` that take part, which for a loss that is a sum over labels is the mean over labels too.

    ``raises_positives`` and ``lowers_negatives`` say whether a step along the negative
    gradient never lowers the score of a positive, never raises that of a negative.
    """

    reduction: str = field(default="mean", kw_only=True)

    raises_positives: ClassVar[bool] = False
    lowers_negatives: ClassVar[bool] = False
    takes_log_q: ClassVar[bool] = True

    def __post_init__(self) -> None:
        choose("reduction", self.reduction, REDUCTIONS)

    def __call__(
        self,
        scores: Tensor,
        targets: Tensor | Targets,
        mask: Tensor | None = None,
        *,
        log_q: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a block of scores.

        Args:
            scores: [B, P], already divided by the temperature; half precision is summed in float32.
            targets: dense [B, P] or :class:`megalabel.types.Targets`; values in (0, 1], 0 is a negative.
            mask: [B, P] bool (or what broadcasts to it); False takes the cell out.
            log_q: [P], log of how likely each label was to be in the pool; taken from the scores of negatives.

        Returns:
            A scalar, or [B] with ``reduction="none"``.
        """
        if log_q is not None:
            self._check_log_q()
        negatives, positives = split(scores, targets, mask, log_q)
        rows = self._rows(negatives, positives)
        if self.reduction == "none":
            return rows
        cells = count_cells(positives.shape, mask) if self.reduction == "cells" else 0
        return rows.sum() / divisor(self.reduction, rows.shape[0], cells)

    def _check_log_q(self) -> None:
        require(
            self.takes_log_q,
            f"{type(self).__name__} takes cosines, which log_q would move out of range",
            "leave log_q out, or choose a loss on free scores",
        )

    @abstractmethod
    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor: ...
