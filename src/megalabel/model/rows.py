"""What the labels changed after training are scored by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Part", "Rows"]

Part: TypeAlias = "Tensor | NDArray[np.float32] | sparse.csr_matrix"


@dataclass(frozen=True)
class Rows:
    """One row for each label that was added or renamed; never changed, only replaced.

    Args:
        ids: [c] label ids, ascending.
        added: [c] False for a label of the training that has a new text.
        parts: what each head keeps of the labels, [c, ...] each.

    >>> rows = Rows(np.array([7]), np.array([True]), {"bias": np.array([0.5], dtype=np.float32)})
    >>> more = rows.replaced(Rows(np.array([2]), np.array([False]), {"bias": np.array([0.25], dtype=np.float32)}))
    >>> more.ids.tolist(), more.parts["bias"].tolist(), more.without([7]).ids.tolist()
    ([2, 7], [0.25, 0.5], [2])
    """

    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    added: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    parts: Mapping[str, Part] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, ids: list[int] | NDArray[np.int64]) -> Rows:
        """Return the rows of all other labels."""
        return self._take(np.flatnonzero(~np.isin(self.ids, np.asarray(ids, dtype=np.int64))))

    def replaced(self, others: Rows) -> Rows:
        """Return these rows and others; where both have a label, that of the others."""
        mine = self.without(others.ids) if np.isin(self.ids, others.ids).any() else self
        if not len(mine):
            return others
        ids = np.concatenate([mine.ids, others.ids])
        joined = {name: _join(part, others.parts[name]) for name, part in mine.parts.items()}
        both = Rows(ids, np.concatenate([mine.added, others.added]), joined)
        return both if np.all(ids[1:] > ids[:-1]) else both._take(np.argsort(ids))

    def _take(self, places: NDArray[np.int64]) -> Rows:
        return Rows(self.ids[places], self.added[places], {n: _taken(part, places) for n, part in self.parts.items()})


def _taken(part: Part, places: NDArray[np.int64]) -> Part:
    return part[torch.from_numpy(places).to(part.device)] if isinstance(part, Tensor) else part[places]


def _join(one: Part, two: Part) -> Part:
    if isinstance(one, Tensor):
        assert isinstance(two, Tensor)
        return torch.cat([one, two])
    if isinstance(one, sparse.csr_matrix):
        assert isinstance(two, sparse.csr_matrix)
        return sparse.csr_matrix(sparse.vstack([one, two], format="csr"))
    assert isinstance(two, np.ndarray)
    return np.concatenate([one, two])
