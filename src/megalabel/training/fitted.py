"""Heads that train no encoder, and the n-grams they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megalabel.encoders._arrays import read_part, write_part
from megalabel.encoders.sparse import SparseEncoder
from megalabel.heads.answers import Answers, LinearAnswers, OverlapAnswers, StoredAnswers
from megalabel.heads.linear import Linear
from megalabel.heads.memory import Memory
from megalabel.heads.overlap import Overlap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.recipes.schema import Recipe

__all__ = ["NGRAMS", "Fitted"]

NGRAMS = "ngrams"  # what a head reads that reads no vectors of the network
COUNTS = "counts"


@dataclass(frozen=True)
class Fitted:
    """What is fitted once the network stands.

    Args:
        counts: [L] points of each label among the rows that were fitted on.
        heads: memories, linear classifiers and overlaps by name.
        of: what each head reads: n-grams, the query vectors of a head of the network, or texts.
        ngrams: turns texts into sparse rows; None if no head reads them.
    """

    counts: NDArray[np.int64]
    heads: Mapping[str, Memory | Linear | Overlap] = field(default_factory=dict)
    of: Mapping[str, str] = field(default_factory=dict)
    ngrams: SparseEncoder | None = None

    def answers(self, texts: Sequence[str], vectors: Mapping[str, Tensor]) -> dict[str, Answers]:
        """Return what each head says of the texts, given the query vectors of the network's heads."""
        views: dict[str, Any] = {name: part.cpu().numpy() for name, part in vectors.items()}
        if self.ngrams is not None:
            views[NGRAMS] = self.ngrams.encode(texts)
        found: dict[str, Answers] = {}
        for name, head in self.heads.items():
            if isinstance(head, Overlap):
                found[name] = OverlapAnswers(head, texts)
            elif isinstance(head, Linear):
                found[name] = LinearAnswers(head, views[NGRAMS])
            else:
                found[name] = StoredAnswers(head.scores(views[self.of[name]]))
        return found

    def save(self, folder: Path) -> None:
        """Write every part into a folder of its own."""
        write_part(folder / COUNTS, COUNTS, {"kind": COUNTS}, {COUNTS: self.counts})
        if self.ngrams is not None:
            self.ngrams.save(folder / NGRAMS)
        for name, head in self.heads.items():
            head.save(folder / name)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> Fitted:
        """Read what :meth:`save` wrote for this recipe."""
        kinds: dict[str, type[Memory | Linear | Overlap]] = {"memory": Memory, "linear": Linear, "overlap": Overlap}
        heads = {name: kinds[settings.kind].load(folder / name) for name, settings in recipe.fitted.items()}
        of = {name: settings.reads for name, settings in recipe.fitted.items()}
        _, arrays = read_part(folder / COUNTS, COUNTS, (), [COUNTS])
        return cls(arrays[COUNTS], heads, of, SparseEncoder.load(folder / NGRAMS) if NGRAMS in of.values() else None)
