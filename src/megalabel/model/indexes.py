"""The indexes a model searches with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError
from megalabel.index import Choice, ExactIndex, choose_index
from megalabel.model.built import Built
from megalabel.training.vectors import LabelSide, fold_labels

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.model.state import State

__all__ = ["INDEX", "Indexes", "load_indexes"]

INDEX = "index"  # folder inside that of a model


class Indexes:
    """One index for each set of heads: those built and saved with the model, exact ones made when first asked for.

    Args:
        side: gives the label vectors of every head.
        built: indexes that are there.
    """

    def __init__(self, side: Callable[[], Mapping[str, LabelSide]], built: Sequence[Built] = ()) -> None:
        self._side = side
        self._built = {one.key: one for one in built}
        self._made: dict[tuple[tuple[str, float], ...], Built] = {}

    @property
    def built(self) -> list[Built]:
        """Those that are saved with the model."""
        return list(self._built.values())

    def of(self, weights: Mapping[str, float]) -> Built:
        """Return the index over the vectors of these heads, folded with their weights."""
        key = tuple(weights.items())
        found = self._built.get(key) or self._made.get(key)
        if found is None:
            found = self._made[key] = Built(dict(weights), ExactIndex(fold_labels(self._side(), weights)[0]))
        return found

    def build(self, weights: Mapping[str, float], queries: Tensor | None, kind: str, **more: Any) -> Choice:
        """Build an index, measure it and keep it in place of the one there was."""
        found = choose_index(fold_labels(self._side(), weights)[0], queries, kind, **more)
        one = Built(dict(weights), found.index, str(found))
        self._built[one.key] = one
        self._made.pop(one.key, None)
        return found

    def drop(self) -> int:
        """Forget all that were built, and return how many."""
        count = len(self._built)
        self._built = {}
        return count

    def beside(self, state: State) -> int:
        """Return how many labels were added or renamed since an index was built, at most."""
        return max((len(np.union1d(one.ids, state.rows.ids)) for one in self.built), default=0)

    def save(self, folder: Path, state: State) -> list[dict[str, Any]]:
        """Write those built into ``folder``; labels added or renamed in the state stand beside them."""
        cards = []
        for place, one in enumerate(self.built):
            if len(state.rows) or len(one.ids):
                vectors = state.folded(one.weights) if len(state.rows) else one.index.vectors[:0]
                one = one.grown(state.rows.ids, vectors, state.removed)
            cards.append(one.save(folder / str(place)))
        return cards


def load_indexes(folder: Path, cards: Sequence[Mapping[str, Any]], heads: Sequence[str], labels: int) -> list[Built]:
    """Read what :meth:`Indexes.save` wrote, for a model with these heads and so many labels."""
    found = []
    for place, card in enumerate(cards):
        one = Built.load(folder / str(place), card)
        most = max(len(one.index) - 1, int(np.max(one.ids, initial=0)))
        if not set(one.weights) <= set(heads) or most >= labels or len(one.ids) != len(one.changed or ()):
            raise DataError("this index is not one of the model", path=folder / str(place), remedy="build it again")
        found.append(one)
    return found
