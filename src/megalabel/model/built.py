"""An index that goes with a model, and what became of its labels since it was built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from megalabel.heads.answers import Answers, DenseAnswers
from megalabel.index import ExactIndex, HnswIndex, IvfIndex, load_index
from megalabel.model.merged_answers import MergedAnswers

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["Built"]

AnyIndex: TypeAlias = ExactIndex | HnswIndex | IvfIndex
_INDEX, _CHANGED = "labels", "changed"  # folders


@dataclass(frozen=True)
class Built:
    """Labels 0 to L - 1 in an index; those added or renamed since stand beside it and are looked at one and all.

    Args:
        weights: the heads whose vectors it holds, and how much each counts.
        index: over the labels there were.
        told: what was measured when it was built, in one line; empty where nothing was.
        ids: [c] labels added or renamed since, ascending.
        changed: an index over their vectors; None where there are none.

    >>> built = Built({"dual": 1.0}, ExactIndex(torch.eye(2))).grown(np.array([2]), torch.tensor([[3.0, 0.0]]), [])
    >>> built.answers(torch.tensor([[1.0, 0.5]]), 3).best(2, None).ids.tolist()
    [[2, 0]]
    """

    weights: Mapping[str, float]
    index: AnyIndex
    told: str = ""
    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    changed: ExactIndex | None = None

    @property
    def key(self) -> tuple[tuple[str, float], ...]:
        """What it is looked up by."""
        return tuple(self.weights.items())

    def answers(self, queries: Tensor, labels: int) -> Answers:
        """Answer by products with queries [Q, d], over so many labels."""
        old = DenseAnswers(self.index, queries.to(self.index.vectors.device))
        if self.changed is None:
            return old if len(self.index) == labels else MergedAnswers(old, None, self.ids, len(self.index))
        new = DenseAnswers(self.changed, queries.to(self.changed.vectors.device))
        return MergedAnswers(old, new, self.ids, len(self.index))

    def without(self, silent: NDArray[np.int64]) -> Built:
        """Return the same where these labels are not found."""
        index = self.index.remove(silent[silent < len(self.index)])
        if self.changed is None:
            return replace(self, index=index)
        return replace(self, index=index, changed=self.changed.remove(np.flatnonzero(np.isin(self.ids, silent))))

    def grown(self, ids: NDArray[np.int64], vectors: Tensor, removed: NDArray[np.int64] | list[int]) -> Built:
        """Return the same with labels [n] that were added or renamed, by their vectors [n, d]."""
        mine = np.flatnonzero(~np.isin(self.ids, ids))
        parts = [vectors.cpu()] if self.changed is None else [self.changed.vectors.cpu()[mine], vectors.cpu()]
        both = np.concatenate([self.ids[mine], ids])
        order = np.argsort(both)
        order = order[~np.isin(both[order], removed)]
        if not len(order):
            return replace(self, ids=both[order], changed=None)
        changed = ExactIndex(torch.cat(parts)[torch.from_numpy(order)])
        old = both[order][both[order] < len(self.index)]
        return replace(self, index=self.index.remove(old), ids=both[order], changed=changed)

    def to(self, device: torch.device) -> Built:
        """Return the same with vectors that are searched exactly on another device; approximate indexes stay."""
        if device.type in ("cpu", "mps") or not isinstance(self.index, ExactIndex):
            return self
        return replace(self, index=self.index.to(device))

    def save(self, folder: Path) -> dict[str, Any]:
        """Write what :meth:`load` reads, and return what the card of the model keeps of it."""
        self.index.save(folder / _INDEX)
        if self.changed is not None:
            self.changed.save(folder / _CHANGED)
        return {"weights": dict(self.weights), "told": self.told, "changed": self.ids.tolist()}

    @classmethod
    def load(cls, folder: Path, card: Mapping[str, Any]) -> Built:
        """Read what :meth:`save` wrote, mapped into memory; every file is checked."""
        ids = np.array(card["changed"], dtype=np.int64)
        changed = ExactIndex.load(folder / _CHANGED) if len(ids) else None
        return cls(card["weights"], load_index(folder / _INDEX), card["told"], ids, changed)
