"""Exact search by blocked products: the same answer for every block size, ties broken by id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.errors import DataError, SettingError
from megalabel.index._search import best_first, check_ids, check_labels, check_search, exact_scores, largest_norm
from megalabel.index._store import read_card, read_vectors, write_index
from megalabel.index._threads import Spread, row_threads
from megalabel.progress import progress
from megalabel.types import TopK

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from megalabel.index._coarse import Coarse


__all__ = ["ExactIndex"]

FEW, LEAST = 8, 1_024  # for so few queries and so many labels, a scan over bytes is faster than a product
BATCH, BLOCK = 256, 16_384  # queries and labels per product by default
_SPARE = 16  # candidates beyond k; one pass is then nearly always enough
_MORE = 64  # times as many for crowded rows
_ROOM = 256  # least room for further candidates: a row is cut when it is full
_HELD = 1 << 22  # candidates held at a time for crowded rows
_UNIT = 2.0**-24  # rounding unit of float32

_Batch: TypeAlias = "tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]"


class ExactIndex:
    """Exact inner-product search over label vectors [L, d].

    Scores of a block of labels come from one float32 product; their last bits depend on
    the shape of the block. So the product only proposes candidates, with a margin of
    the proven rounding bound ``2 d 2^-24 |q| max|v|`` below the k-th best; candidates are
    scored again one by one in float64, rounded to float32, and sorted by score, then by
    id. A row whose k-th place is too crowded for the spare candidates (many labels with
    the same text, say) is searched again with more of them. Memory is batch_size x
    block scores, whatever L is. On a CPU a compiled loop scans the scores while they are in
    the cache, and handles only those above the worst candidate so far.

    An index never changes: :meth:`add` and :meth:`remove` return another one, which shares the
    vectors with the first, so that a search in one thread is not disturbed by a change in another.

    Args:
        vectors: label vectors [L, d]; row l is label l.
        block: labels per product.
        batch_size: queries per product.

    >>> import torch
    >>> index = ExactIndex(torch.eye(3))
    >>> top = index.search(torch.tensor([[0.2, 0.9, 0.2]]), k=2)
    >>> top.ids.tolist()  # labels 0 and 2 tie: the lower id comes first
    [[1, 0]]
    """

    kind = "exact"

    def __init__(self, vectors: Tensor, *, block: int = BLOCK, batch_size: int = BATCH) -> None:
        check_labels(vectors)
        self._begin(vectors.detach().to(torch.float32).contiguous(), None, block, batch_size)

    def _begin(self, vectors: Tensor, longest: Tensor | None, block: int, batch_size: int) -> None:
        if block < 1 or batch_size < 1:
            raise SettingError(f"block and batch_size must be at least 1, not {block} and {batch_size}")
        self.vectors = vectors
        self.block = block
        self.batch_size = batch_size
        self._longest = largest_norm(vectors) if longest is None else longest
        if not torch.isfinite(self._longest):
            raise DataError("a label vector holds NaN or infinity")
        self._bytes: Coarse | None = None  # of these vectors, made by the first search of a few queries
        self._room: Room | None = None  # buffer of the vectors after add()
        self._removed = torch.empty(0, dtype=torch.int64, device=vectors.device)  # ascending

    def __len__(self) -> int:
        """Return the number of labels, including removed ones: ids never change."""
        return self.vectors.shape[0]

    def add(self, vectors: Tensor) -> ExactIndex:
        """Return an index with more labels [n, d]; their ids continue after the last one.

        Vectors are appended in spare room behind the existing ones; when it is full, all are
        copied into a buffer one eighth larger. On average, adding a label costs as much as
        writing its vector.

        >>> index = ExactIndex(torch.eye(2)).add(torch.tensor([[3.0, 0.0]]))
        >>> index.search(torch.tensor([[1.0, 0.5]]), k=2).ids.tolist()
        [[2, 0]]
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.vectors.shape[1]:
            raise DataError(f"new vectors must be [n, {self.vectors.shape[1]}], not {tuple(vectors.shape)}")
        rows = vectors.detach().to(self.vectors)
        longest = torch.maximum(self._longest, largest_norm(rows).to(self._longest))
        if not torch.isfinite(longest):
            raise DataError("a label vector holds NaN or infinity")
        larger = copy(self)
        total = len(self) + len(rows)
        if self._room is None or not self._room.append(len(self), rows):
            larger._room = Room(self.vectors, rows)
        assert larger._room is not None
        larger.vectors, larger._longest, larger._bytes = larger._room.vectors[:total], longest, None
        return larger

    def remove(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> ExactIndex:
        """Return an index that never returns these labels; the ids of the others do not change.

        >>> ExactIndex(torch.eye(3)).remove([1]).search(torch.tensor([[0.2, 0.9, 0.3]]), k=3).ids.tolist()
        [[2, 0, -1]]
        """
        gone = torch.from_numpy(check_ids(ids, len(self))).to(self.vectors.device)
        smaller = copy(self)
        smaller._removed = torch.unique(torch.cat([self._removed, gone]))
        return smaller

    def to(self, device: torch.device | str) -> ExactIndex:
        """Return the index with its vectors on a device, which runs its searches."""
        moved = copy(self)
        moved.vectors, moved._longest, moved._removed = (
            part.to(device) for part in (self.vectors, self._longest, self._removed)
        )
        moved._room = moved._bytes = None
        return moved

    @torch.no_grad()
    def search(self, vectors: Tensor, k: int, exclude: csr_matrix | None = None) -> TopK:
        """Return the k best labels of each query vector [Q, d], best first.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k. Rows with
        fewer than k labels to offer (k > L, or many excluded) end in id -1, score -inf.
        """
        check_search((len(self), self.vectors.shape[1]), vectors, k, exclude)
        queries = vectors.detach().to(device=self.vectors.device, dtype=torch.float32).contiguous()
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        width = min(k, len(self))
        if len(queries) <= FEW and len(self) >= LEAST and self.vectors.device.type == "cpu":
            scores[:, :width], ids[:, :width] = self._few(queries.numpy(), width, exclude)
            return TopK(ids, scores)
        rows = min(self.batch_size, len(queries))
        with progress("searching", total=len(queries), unit="queries") as step, row_threads(rows) as spread:
            for start in range(0, len(queries), self.batch_size):
                part = slice(start, min(start + self.batch_size, len(queries)))
                cells = None if exclude is None else Cells.of(exclude[part], self.vectors.device)
                scores[part, :width], ids[part, :width] = self._search(queries[part], width, cells, spread)
                step(part.stop - start)
        ids[scores == -np.inf] = -1
        return TopK(ids, scores)

    def _few(
        self, queries: NDArray[np.float32], k: int, exclude: csr_matrix | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Search a few queries over one byte per component, with the same result."""
        from megalabel.index._coarse import Coarse

        if self._bytes is None:
            self._bytes = Coarse(self.vectors.numpy(), float(self._longest))
        gone = [self._removed.numpy()] * len(queries)
        if exclude is not None:
            cells = csr_matrix(exclude)
            ends = zip(cells.indptr[:-1], cells.indptr[1:], strict=True)
            rows = [cells.indices[start:stop][cells.data[start:stop] != 0] for start, stop in ends]
            gone = [np.concatenate([removed, row]) for removed, row in zip(gone, rows, strict=True)]
        return self._bytes.search(queries, k, gone)

    def _search(
        self, queries: Tensor, k: int, cells: Cells | None, spread: Spread, spare: int = _SPARE
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Search one batch: products propose candidates, exact scores rank them; crowded rows get more candidates."""
        keep = min(k + spare, len(self))
        if self.vectors.device.type == "cpu":
            scores, ids, crowded = self._compiled(queries, k, keep, cells, spread)
        else:
            scores, ids, crowded = self._plain(queries, k, keep, cells)
        rows = np.flatnonzero(crowded)
        at_once = max(1, _HELD // (k + _MORE * spare))
        for start in range(0, len(rows), at_once):
            part = rows[start : start + at_once]
            again = None if cells is None else cells.take(part)
            rows_on_device = torch.from_numpy(part).to(queries.device)
            scores[part], ids[part] = self._search(queries[rows_on_device], k, again, spread, _MORE * spare)
        return scores, ids

    def _compiled(self, queries: Tensor, k: int, keep: int, cells: Cells | None, spread: Spread) -> _Batch:
        """Return scores and ids [n, k], and which rows are crowded; a compiled loop scans each block."""
        from megalabel.index._kernels import collect, decide

        count = len(queries)
        room = keep + max(keep, _ROOM) if keep < len(self) else keep
        bars, sizes = np.full(count, -np.inf, dtype=np.float32), np.zeros(count, dtype=np.int64)
        best, held = np.empty((count, room), dtype=np.float32), np.empty((count, room), dtype=np.int64)
        for start, block in self._blocks(queries, cells):
            spread(partial(collect, block.numpy(), start, keep, bars, sizes, best, held), count)
        scores, ids = np.empty((count, k), dtype=np.float32), np.empty((count, k), dtype=np.int64)
        crowded = np.zeros(count, dtype=np.bool_)
        arrays = self.vectors.numpy(), queries.numpy(), self._margins(queries).numpy()
        spread(partial(decide, *arrays, k, keep, sizes, best, held, scores, ids, crowded), count)
        return scores, ids, crowded

    def _plain(self, queries: Tensor, k: int, keep: int, cells: Cells | None) -> _Batch:
        """Return the same with torch only, for devices other than a CPU."""
        best = queries.new_empty((len(queries), 0))
        ids = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
        for start, block in self._blocks(queries, cells):
            block_best, places = block.topk(min(keep, block.shape[1]), dim=1)
            best, ids = torch.cat([best, block_best], dim=1), torch.cat([ids, places + start], dim=1)
            best, chosen = best.topk(min(keep, best.shape[1]), dim=1)
            ids = ids.gather(1, chosen)
        floor = best[:, k - 1] - self._margins(queries)
        crowded = ~(best[:, -1] < floor) & (best[:, -1] > -torch.inf) & (keep < len(self))
        scores = exact_scores(self.vectors, queries, ids).masked_fill_(best == -torch.inf, -torch.inf)
        scores, ids = best_first(scores, ids, k)
        return scores.cpu().numpy(), ids.cpu().numpy(), crowded.cpu().numpy()

    def _margins(self, queries: Tensor) -> Tensor:
        """Return the rounding bound of a product, for each query."""
        margins: Tensor = 2 * queries.shape[1] * _UNIT * queries.norm(dim=1) * self._longest
        return margins

    def _blocks(self, queries: Tensor, cells: Cells | None) -> Iterator[tuple[int, Tensor]]:
        """Yield the first label of each block and its float32 scores [n, block]; excluded ones are -inf."""
        buffer = queries.new_empty((len(queries), min(self.block, len(self))))
        for start in range(0, len(self), self.block):
            labels = self.vectors[start : start + self.block]
            if len(labels) < buffer.shape[1]:
                buffer = queries.new_empty((len(queries), len(labels)))
            scores = torch.mm(queries, labels.T, out=buffer)
            if cells is not None:
                rows, columns = cells.between(start, start + len(labels))
                scores[rows, columns - start] = -torch.inf
            if len(self._removed):
                scores[:, self._removed[between(self._removed, start, start + len(labels))] - start] = -torch.inf
            yield start, scores

    def settings(self) -> dict[str, int]:
        """Return block and batch_size."""
        return {"block": self.block, "batch_size": self.batch_size}

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the folder that :meth:`load` reads, completely or not at all: a file of numpy, and JSON."""
        settings = {**self.settings(), "longest": float(self._longest)}
        shape = {"labels": len(self), "dim": self.vectors.shape[1], "removed": self._removed.tolist()}
        card = {"kind": self.kind, **shape, "settings": settings}
        write_index(folder, None, self.vectors.cpu(), card, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read an index that :meth:`save` wrote, mapped into memory; every file is checked first."""
        card = read_card(folder, cls.kind)
        settings = dict(card["settings"])
        index = cls.__new__(cls)
        vectors = read_vectors(folder, (card["labels"], card["dim"]))
        index._begin(vectors, torch.tensor(settings.pop("longest")), **settings)
        index._removed = torch.tensor(card["removed"], dtype=torch.int64)
        return index


_SHARE, _SPARE_ROWS = 8, 64  # room for new labels: an eighth of the existing ones, and some


class Room:
    """A buffer of vectors with free rows at the end; an index and the results of its add() share it."""

    def __init__(self, vectors: Tensor, more: Tensor) -> None:
        self.used = len(vectors) + len(more)
        self.vectors = vectors.new_empty((self.used + self.used // _SHARE + _SPARE_ROWS, vectors.shape[1]))
        self.vectors[: len(vectors)] = vectors
        self.vectors[len(vectors) : self.used] = more
        self._lock = Lock()

    def append(self, start: int, vectors: Tensor) -> bool:
        """Write vectors from row ``start`` on; return False if these rows are taken or there are too few."""
        with self._lock:
            if start != self.used or start + len(vectors) > len(self.vectors):
                return False
            self.vectors[start : start + len(vectors)] = vectors
            self.used = start + len(vectors)
            return True


class Cells:
    """Excluded (row, label) cells of one batch, sorted by label, so that those of a block are contiguous."""

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
        """Return the cells of some rows, renumbered in their order."""
        chosen = torch.from_numpy(rows).to(self.rows.device)
        at = torch.searchsorted(chosen, self.rows)
        inside = chosen[at.clamp(max=len(chosen) - 1)] == self.rows
        return Cells(at[inside], self.columns[inside])


def between(ascending: Tensor, start: int, stop: int) -> slice:
    """Return the positions of the numbers from ``start`` up to ``stop``.

    >>> between(torch.tensor([2, 5, 7]), 3, 7)
    slice(1, 2, None)
    """
    edges = torch.tensor([start, stop], device=ascending.device)
    first, last = torch.searchsorted(ascending, edges).tolist()
    return slice(first, last)
