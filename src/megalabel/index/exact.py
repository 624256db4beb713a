"""Exact search by blocked products: the same answer for every block size, ties broken by id."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from megalabel.errors import DataError, SettingError
from megalabel.index._search import best_first, check_labels, check_search, exact_scores, largest_norm
from megalabel.progress import progress
from megalabel.types import TopK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["ExactIndex"]

_SPARE = 16  # candidates kept beyond k, so that one pass is nearly always enough
_UNIT = 2.0**-24  # rounding unit of float32
_GATHER = 1 << 22  # vector components re-scored at a time
_SHARE, _LEAST = 8, 64  # room for new labels: an eighth of those there are, and some


class ExactIndex:
    """Inner-product search over label vectors [L, d] that looks at every label.

    Scores of a block of labels come from one float32 product; their last bits depend on
    the shape of the block. So the product only proposes candidates, with a margin of
    the proven rounding bound 2 d 2^-24 |q| max|v| below the k-th best; candidates are
    scored again one by one in float64, rounded to float32, and sorted by score, then by
    id. A row whose k-th place is too crowded for the spare candidates (many labels with
    the same text, say) is looked at once more in full. Memory is batch_size x block
    scores, whatever L is.

    An index never changes: :meth:`add` and :meth:`remove` return another one, which shares the
    vectors with the first, so that a search in one thread is not disturbed by a change in another.

    Args:
        vectors: label vectors [L, d]; row l is label l.
        block: labels per product.
        batch_size: queries per product.

    >>> import torch
    >>> index = ExactIndex(torch.eye(3))
    >>> found = index.search(torch.tensor([[0.2, 0.9, 0.2]]), k=2)
    >>> found.ids.tolist()  # labels 0 and 2 tie: the lower id comes first
    [[1, 0]]
    """

    def __init__(self, vectors: Tensor, *, block: int = 16_384, batch_size: int = 256) -> None:
        check_labels(vectors)
        if block < 1 or batch_size < 1:
            raise SettingError(f"block and batch_size must be at least 1, not {block} and {batch_size}")
        self.vectors = vectors.detach().to(torch.float32)
        self.block = block
        self.batch_size = batch_size
        self._longest = largest_norm(self.vectors)
        if not torch.isfinite(self._longest):
            raise DataError("a label vector holds NaN or infinity")
        self._room: _Room | None = None  # what the vectors lie in, once the index has grown
        self._removed = torch.empty(0, dtype=torch.int64, device=self.vectors.device)  # ascending

    def __len__(self) -> int:
        """Return the number of labels, removed ones too: ids never move."""
        return self.vectors.shape[0]

    def add(self, vectors: Tensor) -> ExactIndex:
        """Return an index with more labels [n, d]; their ids follow on the last.

        Vectors are written behind those that are there, into room kept for them; only when it
        is full, all are copied, into a room one eighth larger. The time for one label is that of
        writing its vector, on average.

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
        found = copy(self)
        total = len(self) + len(rows)
        if self._room is None or not self._room.append(len(self), rows):
            found._room = _Room(self.vectors, rows)
        assert found._room is not None
        found.vectors, found._longest = found._room.vectors[:total], longest
        return found

    def remove(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> ExactIndex:
        """Return an index that no longer finds these labels; the ids of all others stay as they are.

        >>> ExactIndex(torch.eye(3)).remove([1]).search(torch.tensor([[0.2, 0.9, 0.3]]), k=3).ids.tolist()
        [[2, 0, -1]]
        """
        gone = torch.as_tensor(ids, dtype=torch.int64, device=self.vectors.device).reshape(-1)
        if len(gone) and not (int(gone.min()) >= 0 and int(gone.max()) < len(self)):
            raise DataError(f"ids to remove must lie in 0 to {len(self) - 1:,}")
        found = copy(self)
        found._removed = torch.unique(torch.cat([self._removed, gone]))
        return found

    @torch.no_grad()
    def search(self, vectors: Tensor, k: int, exclude: csr_matrix | None = None) -> TopK:
        """Return the k best labels of each query vector [Q, d], best first.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k. Rows with
        fewer than k labels to offer (k > L, or many excluded) end in id -1, score -inf.
        """
        check_search((len(self), self.vectors.shape[1]), vectors, k, exclude)
        queries = vectors.detach().to(device=self.vectors.device, dtype=torch.float32)
        ids = torch.full((len(queries), k), -1, dtype=torch.int64)
        scores = torch.full((len(queries), k), -torch.inf)
        with progress("searching", total=len(queries), unit="queries") as step:
            for start in range(0, len(queries), self.batch_size):
                part = slice(start, min(start + self.batch_size, len(queries)))
                cells = _Cells(exclude[part] if exclude is not None else None, self.vectors.device)
                found_scores, found_ids = self._search(queries[part], min(k, len(self)), cells)
                ids[part, : found_ids.shape[1]] = found_ids.cpu()
                scores[part, : found_ids.shape[1]] = found_scores.cpu()
                step(part.stop - start)
        ids[scores == -torch.inf] = -1
        return TopK(ids.numpy(), scores.numpy())

    def _search(self, queries: Tensor, k: int, cells: _Cells) -> tuple[Tensor, Tensor]:
        """One batch: propose by products, decide by exact scores."""
        keep = min(k + _SPARE, len(self))
        rough, ids = self._propose(queries, keep, cells)
        margin = 2 * queries.shape[1] * _UNIT * queries.norm(dim=1) * self._longest
        floor = rough[:, k - 1] - margin
        scores = exact_scores(self.vectors, queries, ids).masked_fill_(rough == -torch.inf, -torch.inf)
        scores, ids = best_first(scores, ids, k)
        crowded = (rough[:, -1] >= floor) & (rough[:, -1] > -torch.inf) & (keep < len(self))
        for row in crowded.nonzero().flatten().tolist():
            scores[row], ids[row] = self._search_crowded(queries[row : row + 1], floor[row], k, cells.row(row))
        return scores, ids

    def _propose(self, queries: Tensor, keep: int, cells: _Cells) -> tuple[Tensor, Tensor]:
        """Return the rough scores and ids of the best ``keep`` labels, best first."""
        best = queries.new_empty((len(queries), 0))
        ids = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
        buffer = queries.new_empty((len(queries), min(self.block, len(self))))
        for start in range(0, len(self), self.block):
            scores = self._block(queries, start, buffer, cells)
            found, places = scores.topk(min(keep, scores.shape[1]), dim=1)
            best, ids = torch.cat([best, found], dim=1), torch.cat([ids, places + start], dim=1)
            best, chosen = best.topk(min(keep, best.shape[1]), dim=1)
            ids = ids.gather(1, chosen)
        return best, ids

    def _block(self, queries: Tensor, start: int, buffer: Tensor, cells: _Cells) -> Tensor:
        """Return rough scores of the block of labels from ``start``, excluded cells at -inf."""
        labels = self.vectors[start : start + self.block]
        if len(labels) < buffer.shape[1]:
            buffer = queries.new_empty((len(queries), len(labels)))
        scores = torch.mm(queries, labels.T, out=buffer)
        rows, columns = cells.between(start, start + len(labels))
        scores[rows, columns - start] = -torch.inf
        if len(self._removed):
            scores[:, self._removed[_between(self._removed, start, start + len(labels))] - start] = -torch.inf
        return scores

    def _search_crowded(self, query: Tensor, floor: Tensor, k: int, cells: _Cells) -> tuple[Tensor, Tensor]:
        """Score every label of one query that may still reach the first k places."""
        scores = query.new_empty((1, 0))
        ids = torch.empty((1, 0), dtype=torch.int64, device=query.device)
        buffer = query.new_empty((1, min(self.block, len(self))))
        for start in range(0, len(self), self.block):
            near = (self._block(query, start, buffer, cells)[0] >= floor).nonzero().flatten() + start
            for part in torch.split(near, max(1, _GATHER // query.shape[1])) if len(near) else ():
                found = exact_scores(self.vectors, query, part.unsqueeze(0))
                scores, ids = torch.cat([scores, found], dim=1), torch.cat([ids, part.unsqueeze(0)], dim=1)
                scores, ids = best_first(scores, ids, min(k, ids.shape[1]))
        return scores[0], ids[0]


class _Cells:
    """Excluded (row, label) cells of one batch, sorted by label so that a block finds its own at once."""

    def __init__(self, matrix: csr_matrix | None, device: torch.device) -> None:
        rows = torch.empty(0, dtype=torch.int64)
        columns = torch.empty(0, dtype=torch.int64)
        if matrix is not None:
            pairs = matrix.tocoo()
            real = torch.from_numpy(pairs.data != 0)
            rows = torch.from_numpy(pairs.row).long()[real]
            columns = torch.from_numpy(pairs.col).long()[real]
        columns, order = columns.sort()
        self.rows, self.columns = rows[order].to(device), columns.to(device)

    def between(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        inside = _between(self.columns, start, stop)
        return self.rows[inside], self.columns[inside]

    def row(self, row: int) -> _Cells:
        one = _Cells(None, self.rows.device)
        one.columns = self.columns[self.rows == row]
        one.rows = torch.zeros_like(one.columns)
        return one


class _Room:
    """Vectors with free places behind them; indexes that grew out of one another share it."""

    def __init__(self, vectors: Tensor, more: Tensor) -> None:
        self.used = len(vectors) + len(more)
        self.vectors = vectors.new_empty((self.used + self.used // _SHARE + _LEAST, vectors.shape[1]))
        self.vectors[: len(vectors)] = vectors
        self.vectors[len(vectors) : self.used] = more
        self._lock = Lock()

    def append(self, start: int, vectors: Tensor) -> bool:
        """Write vectors from ``start`` on; False where these places are taken or there are too few."""
        with self._lock:
            if start != self.used or start + len(vectors) > len(self.vectors):
                return False
            self.vectors[start : start + len(vectors)] = vectors
            self.used = start + len(vectors)
            return True


def _between(ascending: Tensor, start: int, stop: int) -> slice:
    """Return where the numbers from ``start`` up to ``stop`` stand."""
    edges = torch.tensor([start, stop], device=ascending.device)
    first, last = torch.searchsorted(ascending, edges).tolist()
    return slice(first, last)
