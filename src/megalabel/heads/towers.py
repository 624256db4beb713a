"""Towers: where the vector of a label comes from."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

__all__ = ["FreeTower", "TextFreeTower", "TextTower"]

_DRAWN = 16_384  # rows drawn at a time


class TextTower(nn.Module):
    """The label's text decides: the projected encoder vector, and nothing per label."""

    needs_text = True

    def forward(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return the projected vectors of the label texts as they are."""
        if projected is None:
            raise TypeError("a text tower needs encoded label texts")
        return projected


class FreeTower(nn.Module):
    """A free vector per label, the classifier of one-vs-all systems.

    The table [L, d] gives sparse gradients for the rows of a pool, so that an optimiser
    with row-wise updates touches only them, and dense ones when every label takes part.
    With ``own`` the table holds the rows of these labels only, as they would start in the whole table.
    """

    needs_text = False

    def __init__(self, labels: int, dim: int, *, dropout: float = 0.0, own: range | None = None) -> None:
        super().__init__()
        self.dropout = dropout
        self.table = nn.Parameter(torch.empty(labels if own is None else len(own), dim))
        if own is None:
            nn.init.xavier_uniform_(self.table)
        else:
            _start_own(self.table, labels, own)

    def forward(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return the rows of the pool."""
        rows = self.table if pool is None else embedding(pool, self.table, sparse=True)
        return dropout(rows, self.dropout, self.training) if self.dropout else rows


class TextFreeTower(nn.Module):
    """The label's text plus a free correction that starts at zero: w_l = f(z_l) + eta_l.

    The classifier of SiameseXML (Dahiya et al. 2021) and NGAME (Dahiya et al. 2023).
    """

    needs_text = True

    def __init__(self, labels: int, dim: int, *, dropout: float = 0.0, own: range | None = None) -> None:
        super().__init__()
        self.free = FreeTower(labels, dim, dropout=dropout, own=own)
        nn.init.zeros_(self.free.table)

    def forward(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return text vector plus correction."""
        if projected is None:
            raise TypeError("a text + free tower needs encoded label texts")
        rows: Tensor = self.free(pool, None)
        return projected + rows


@torch.no_grad()
def _start_own(table: Tensor, labels: int, own: range) -> None:
    """Draw what ``xavier_uniform_`` gives the rows ``own`` of a table [labels, d]; other rows are drawn and dropped."""
    bound = math.sqrt(3.0) * math.sqrt(2.0 / (labels + table.shape[1]))  # to the last bit
    for start in range(0, labels, _DRAWN):
        rows = table.new_empty(min(_DRAWN, labels - start), table.shape[1]).uniform_(-bound, bound)
        first, last = max(start, own.start), min(start + len(rows), own.stop)
        if first < last:
            table[first - own.start : last - own.start] = rows[first - start : last - start]
