"""Pairs of query and label that a search leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["Cells", "between"]


class Cells:
    """Excluded (row, label) cells of one batch, sorted by label so that a block finds its own at once."""

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        self.rows, self.columns = rows, columns

    @classmethod
    def of(cls, matrix: csr_matrix, device: torch.device) -> Cells:
        """Take the non-zero cells of a matrix [Q, L]."""
        pairs = matrix.tocoo()
        real = pairs.data != 0
        order = np.argsort(pairs.col[real], kind="stable")
        rows, columns = (torch.from_numpy(part[real][order].astype(np.int64)) for part in (pairs.row, pairs.col))
        return cls(rows.to(device), columns.to(device))

    def between(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return rows and labels of the cells of labels ``start`` up to ``stop``."""
        inside = between(self.columns, start, stop)
        return self.rows[inside], self.columns[inside]

    def take(self, rows: NDArray[np.int64]) -> Cells:
        """Return the cells of some rows, which are counted anew in their order."""
        place = torch.from_numpy(rows).to(self.rows.device)
        at = torch.searchsorted(place, self.rows)
        inside = place[at.clamp(max=len(place) - 1)] == self.rows
        return Cells(at[inside], self.columns[inside])


def between(ascending: Tensor, start: int, stop: int) -> slice:
    """Return where the numbers from ``start`` up to ``stop`` stand.

    >>> between(torch.tensor([2, 5, 7]), 3, 7)
    slice(1, 2, None)
    """
    edges = torch.tensor([start, stop], device=ascending.device)
    first, last = torch.searchsorted(ascending, edges).tolist()
    return slice(first, last)
