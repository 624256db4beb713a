"""The search all approximate indexes share: faiss proposes, exact scores decide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from megalabel.errors import DataError, SettingError
from megalabel.index._faiss import as_rows
from megalabel.index._search import best_first, check_labels, check_search, exact_scores, largest_norm, rough_scores
from megalabel.index._store import read_card, write_index
from megalabel.index.exact import ExactIndex
from megalabel.progress import progress
from megalabel.types import TopK

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["Approximate", "as_labels", "check_settings"]

_BATCH = 1024  # queries proposed for at a time
_SPARE = 4  # candidates beyond k, for what rounding leaves in doubt


class Approximate(ABC):
    """An index that looks at some labels only.

    What faiss proposes is scored again as :class:`~megalabel.index.ExactIndex` scores it, so
    a label found by both has the same score to the bit, and ties are in the order of ids.
    Excluded pairs are left out before the cut to k: as many more are proposed as the row
    excludes. Where a search would score half of all labels or more, or a row got too few
    proposals, it is done exactly.
    """

    kind: ClassVar[str]

    def __init__(self, faiss_index: Any, vectors: Tensor) -> None:
        self.faiss_index = faiss_index
        self.vectors = vectors  # [L, d]

    def __len__(self) -> int:
        return self.vectors.shape[0]

    @property
    @abstractmethod
    def effort(self) -> int:
        """How far a search looks: more finds more of the best labels and takes longer."""

    @effort.setter
    @abstractmethod
    def effort(self, value: int) -> None: ...

    @property
    @abstractmethod
    def most_effort(self) -> int:
        """The effort from which on nothing more is found."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what the index was built with and is searched with, ready for JSON."""

    @abstractmethod
    def _propose(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return up to ``count`` good labels [n, count] of each query, -1 where there are no more."""

    @abstractmethod
    def _scored(self, count: int) -> int:
        """Return about how many labels are scored to propose ``count`` of them."""

    @abstractmethod
    def _parts(self) -> tuple[Any, Tensor | None]:
        """Return the faiss index to save, and the vectors beside it where that has none."""

    @classmethod
    @abstractmethod
    def _restore(cls, folder: str | PathLike[str], card: dict[str, Any]) -> Self:
        """Make the index from files that proved whole."""

    @torch.no_grad()
    def search(self, vectors: Tensor, k: int, exclude: sparse.csr_matrix | None = None) -> TopK:
        """Return k of the best labels of each query vector [Q, d], best first.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k. Rows with
        fewer than k labels to offer (k > L, or many excluded) end in id -1, score -inf.
        """
        check_search((len(self), self.vectors.shape[1]), vectors, k, exclude)
        queries = vectors.detach().to(device="cpu", dtype=torch.float32)
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        cells = None if exclude is None else _pairs(exclude)
        order = None if cells is None else np.argsort(np.diff(cells.indptr), kind="stable")  # rows alike come together
        with progress("searching", total=len(queries), unit="queries") as step:
            for start in range(0, len(queries), _BATCH):
                part = slice(start, min(start + _BATCH, len(queries)))
                rows = part if order is None else order[part]
                found = self._search(queries[rows], k, None if cells is None else cells[rows])
                ids[rows], scores[rows] = found.ids, found.scores
                step(part.stop - start)
        return TopK(ids, scores)

    def _search(self, queries: Tensor, k: int, cells: sparse.csr_matrix | None) -> TopK:
        """Search for one batch; cells [n, L] are left out."""
        excluded = np.zeros(1, dtype=np.int64) if cells is None else np.diff(cells.indptr)
        count = self._candidates(k) + int(excluded.max()) + _SPARE
        if 2 * self._scored(count) >= len(self):
            return self._exact.search(queries, k, exclude=cells)
        proposed = self._propose(as_rows(queries, self.faiss_index.d), count)
        good = proposed >= 0
        if cells is not None:
            good &= ~_among(proposed, cells)
        bad, candidates = torch.from_numpy(~good), torch.from_numpy(np.where(good, proposed, 0))
        if count > 2 * (k + _SPARE):  # few of many are kept: the products of all say which may be
            rough = rough_scores(self.vectors, queries, candidates).masked_fill_(bad, -torch.inf)
            places = rough.topk(k + _SPARE, dim=1).indices
            bad, candidates = bad.gather(1, places), candidates.gather(1, places)
        scores = exact_scores(self.vectors, queries, candidates).masked_fill_(bad, -torch.inf)
        best, ids = best_first(scores, candidates, k)
        found = TopK(ids.masked_fill_(best == -torch.inf, -1).numpy(), best.numpy())
        short = np.flatnonzero(good.sum(axis=1) < np.minimum(k, len(self) - excluded))
        if len(short):
            again = self._exact.search(queries[short], k, exclude=None if cells is None else cells[short])
            found.ids[short], found.scores[short] = again.ids, again.scores
        return found

    def _candidates(self, k: int) -> int:
        """Return how many proposals k answers are chosen from."""
        return k

    @cached_property
    def _exact(self) -> ExactIndex:
        return ExactIndex(self.vectors)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the folder that :meth:`load` reads, whole or not at all: files of faiss and numpy, and JSON."""
        shape = {"labels": len(self), "dim": self.vectors.shape[1]}
        card = {"kind": self.kind, **shape, "settings": self.settings()}
        write_index(folder, *self._parts(), card, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read an index that :meth:`save` wrote, mapped into memory; every file is checked first."""
        card = read_card(folder)
        if card["kind"] != cls.kind:
            raise DataError(f"this index is of kind {card['kind']}, not {cls.kind}", path=folder)
        return cls._restore(folder, card)


def as_labels(vectors: Tensor) -> Tensor:
    """Return label vectors as float32 on the CPU, checked."""
    check_labels(vectors)
    found = vectors.detach().to(device="cpu", dtype=torch.float32).contiguous()
    if not torch.isfinite(largest_norm(found)):
        raise DataError("a label vector holds NaN or infinity")
    return found


def check_settings(seed: int = 0, **least_one: int | None) -> None:
    """Raise a SettingError for a number below 1 or a seed faiss cannot take; None is left to the index."""
    for name, value in least_one.items():
        if value is not None and value < 1:
            raise SettingError(f"{name} must be at least 1, not {value}")
    if not 0 <= seed < 2**31:
        raise SettingError(f"the seed of an index must lie in 0 to {2**31 - 1}, not {seed}")


def _pairs(exclude: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the cells to leave out, each once and none of them zero."""
    found = sparse.csr_matrix(exclude, copy=True)
    found.data = (found.data != 0).astype(np.float32)
    found.eliminate_zeros()
    found.sum_duplicates()
    return found


def _among(proposed: NDArray[np.int64], cells: sparse.csr_matrix) -> NDArray[np.bool_]:
    """Say which of the proposed labels [n, count] are excluded."""
    width = np.int64(cells.shape[1])
    rows = np.repeat(np.arange(cells.shape[0], dtype=np.int64), np.diff(cells.indptr))
    wanted = np.arange(len(proposed), dtype=np.int64)[:, None] * width + proposed
    return np.isin(wanted, rows * width + cells.indices.astype(np.int64))
