"""The search of all approximate indexes: faiss proposes candidates, exact scores rank them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from megalabel.errors import DataError, SettingError
from megalabel.index._faiss import as_rows, left_over
from megalabel.index._search import check_ids, check_labels, check_search, largest_norm
from megalabel.index._store import read_card, write_index
from megalabel.index._threads import row_threads
from megalabel.index.exact import ExactIndex
from megalabel.progress import progress
from megalabel.types import TopK

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["Approximate", "as_labels", "check_settings"]

_BATCH = 1024  # queries per batch
_SPARE = 4  # candidates beyond k, because faiss rounds differently


class Approximate(ABC):
    """An index that compares a query with some of the labels only.

    Candidates of faiss are scored again like those of :class:`~megalabel.index.ExactIndex`, so
    a label returned by both has the same score bit for bit, and ties are in the order of ids.
    Excluded pairs are removed before the cut to k; a row with exclusions gets that many more
    candidates. If a search would score half of all labels or more, or a row got too few
    candidates, the search is exact.
    """

    kind: ClassVar[str]

    def __init__(self, faiss_index: Any, vectors: Tensor) -> None:
        self.faiss_index = faiss_index
        self.vectors = vectors  # [L, d]
        self._rows = vectors.numpy()
        self._shape: tuple[int, int] = self._rows.shape  # cached: reading the shape of a tensor takes longer
        self._width: int = faiss_index.d
        self.removed = np.empty(0, dtype=np.int64)  # ascending
        self._selector: Any = None  # faiss selector of the labels that are left
        self._plain: list[ExactIndex] = []  # built on first use, shared with the results of remove()

    def __len__(self) -> int:
        """Return the number of labels, including removed ones: ids never change."""
        return self._shape[0]

    def remove(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> Self:
        """Return an index that never returns these labels; everything else is shared with this one.

        >>> import torch
        >>> from megalabel.index import IvfIndex
        >>> IvfIndex.build(torch.eye(40)).remove([7]).search(torch.eye(40)[7:8], k=1).ids.tolist()
        [[0]]
        """
        smaller = copy(self)
        smaller.removed = np.union1d(self.removed, check_ids(ids, len(self)))
        smaller._selector = left_over(smaller.removed, len(self)) if len(smaller.removed) else None
        return smaller

    @property
    @abstractmethod
    def effort(self) -> int:
        """Effort of a search (nprobe, ef_search): more finds more of the best labels and takes longer."""

    @effort.setter
    @abstractmethod
    def effort(self, value: int) -> None: ...

    @property
    @abstractmethod
    def most_effort(self) -> int:
        """The effort beyond which results no longer change."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings of build and search, ready for JSON."""

    @abstractmethod
    def _propose(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return up to ``count`` candidates [n, count] of each query, padded with -1."""

    @abstractmethod
    def _scored(self, count: int) -> int:
        """Return about how many labels are scored to find ``count`` candidates."""

    @abstractmethod
    def _parts(self) -> tuple[Any, Tensor | None]:
        """Return the faiss index to save, and the vectors if it does not hold them."""

    @classmethod
    @abstractmethod
    def _restore(cls, folder: str | PathLike[str], card: dict[str, Any]) -> Self:
        """Build the index from checked files."""

    def search(self, vectors: Tensor, k: int, exclude: sparse.csr_matrix | None = None) -> TopK:
        """Return k of the best labels of each query vector [Q, d], best first.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k. Rows with
        fewer than k labels to offer (k > L, or many excluded) end in id -1, score -inf.
        """
        check_search(self._shape, vectors, k, exclude)
        queries = vectors.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()
        cells = None if exclude is None else _pairs(exclude)
        if len(queries) <= _BATCH:
            return self._search(queries, k, cells)
        ids = np.empty((len(queries), k), dtype=np.int64)
        scores = np.empty((len(queries), k), dtype=np.float32)
        order = (
            None if cells is None else np.argsort(np.diff(cells.indptr), kind="stable")
        )  # rows with similar numbers of exclusions together
        with progress("searching", total=len(queries), unit="queries") as step:
            for start in range(0, len(queries), _BATCH):
                part = slice(start, min(start + _BATCH, len(queries)))
                rows = part if order is None else order[part]
                batch = self._search(queries[rows], k, None if cells is None else cells[rows])
                ids[rows], scores[rows] = batch.ids, batch.scores
                step(part.stop - start)
        return TopK(ids, scores)

    def _search(self, queries: NDArray[np.float32], k: int, cells: sparse.csr_matrix | None) -> TopK:
        """Search one batch; the ``cells`` [n, L] are excluded."""
        most = 0 if cells is None else int(np.diff(cells.indptr).max(initial=0))
        count = self._candidates(k) + most + _SPARE
        if 2 * self._scored(count) >= self._shape[0]:
            return self._exact.search(torch.from_numpy(queries), k, exclude=cells)
        proposed = self._propose(as_rows(queries, self._width), count)
        if cells is not None:
            proposed[_among(proposed, cells)] = -1
        top, sizes = self._rank(queries, proposed, k)
        if sizes.min(initial=k) < k:
            short = np.flatnonzero(sizes < min(k, self._shape[0] - len(self.removed)))
            unfilled = torch.from_numpy(queries[short])
            again = self._exact.search(unfilled, k, exclude=None if cells is None else cells[short])
            top.ids[short], top.scores[short] = again.ids, again.scores
        return top

    def _rank(
        self, queries: NDArray[np.float32], proposed: NDArray[np.int64], k: int
    ) -> tuple[TopK, NDArray[np.int64]]:
        """Return the k best candidates by exact score, and the number of candidates."""
        from megalabel.index._kernels import rank

        count = len(queries)
        ids, scores = np.empty((count, k), dtype=np.int64), np.empty((count, k), dtype=np.float32)
        sizes = np.empty(count, dtype=np.int64)
        with row_threads(count) as spread:
            spread(partial(rank, self._rows, queries, proposed, scores, ids, sizes), count)
        return TopK(ids, scores), sizes

    def _candidates(self, k: int) -> int:
        """Return the number of candidates for k results."""
        return k

    @property
    def _exact(self) -> ExactIndex:
        if not self._plain:
            self._plain.append(ExactIndex(self.vectors))
        return self._plain[0].remove(self.removed) if len(self.removed) else self._plain[0]

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the folder that :meth:`load` reads, completely or not at all: files of faiss and numpy, and JSON."""
        shape = {"labels": len(self), "dim": self.vectors.shape[1], "removed": self.removed.tolist()}
        card = {"kind": self.kind, **shape, "settings": self.settings()}
        write_index(folder, *self._parts(), card, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read an index that :meth:`save` wrote, mapped into memory; every file is checked first."""
        card = read_card(folder, cls.kind)
        index = cls._restore(folder, card)
        return index.remove(card["removed"]) if card["removed"] else index


def as_labels(vectors: Tensor) -> Tensor:
    """Return label vectors as float32 on the CPU, checked."""
    check_labels(vectors)
    labels = vectors.detach().to(device="cpu", dtype=torch.float32).contiguous()
    if not torch.isfinite(largest_norm(labels)):
        raise DataError("a label vector holds NaN or infinity")
    return labels


def check_settings(seed: int = 0, **at_least_one: int | None) -> None:
    """Raise a SettingError for a number below 1 or an invalid seed; None means the default of the index."""
    for name, value in at_least_one.items():
        if value is not None and value < 1:
            raise SettingError(f"{name} must be at least 1, not {value}")
    if not 0 <= seed < 2**31:
        raise SettingError(f"the seed of an index must lie in 0 to {2**31 - 1}, not {seed}")


def _pairs(exclude: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the excluded cells without duplicates and zeros."""
    pairs = sparse.csr_matrix(exclude, copy=True)
    pairs.data = (pairs.data != 0).astype(np.float32)
    pairs.eliminate_zeros()
    pairs.sum_duplicates()
    return pairs


def _among(proposed: NDArray[np.int64], cells: sparse.csr_matrix) -> NDArray[np.bool_]:
    """Return which candidates [n, count] are excluded."""
    width = np.int64(cells.shape[1])
    rows = np.repeat(np.arange(cells.shape[0], dtype=np.int64), np.diff(cells.indptr))
    proposed_cells = np.arange(len(proposed), dtype=np.int64)[:, None] * width + proposed
    return np.isin(proposed_cells, rows * width + cells.indices.astype(np.int64))
