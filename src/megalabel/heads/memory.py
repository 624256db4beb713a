"""Memory: a query has the labels of the training queries most like it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy import sparse

from megalabel.encoders._arrays import read_part, write_part
from megalabel.errors import DataError, SettingError
from megalabel.heads._rows import PARTS, as_rows, as_targets, no_cells, pack, unpack
from megalabel.types import TopK

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from megalabel.heads._inverted import Inverted
    from megalabel.index import ExactIndex

__all__ = ["Memory"]

_EMPTY = "call fit with the training rows first"


class Memory:
    r"""Score labels by the training queries nearest to a query.

    .. math:: s_l(q) = \frac{\sum_{i \in N(q)} \cos(q, x_i)^p \, y_{il}}{\sum_{i \in N(q)} \cos(q, x_i)^p}

    with N(q) the ``nearest`` training rows of largest cosine, among those above zero. Scores
    lie in [0, 1]. It knows what it has seen and nothing else: labels without a training row
    have no score. Weighted k-nearest-neighbour voting (Dudani 1976).

    Vectors are sparse rows (:class:`megalabel.encoders.SparseEncoder`) or a float32 array
    [N, d], such as a model's own space; they are scaled to length 1 here. Search is exact,
    sparse by the rows of each feature, dense by blocked products; equal cosines go to the
    lower row.

    Args:
        nearest: training rows that have a say.
        power: p; the larger, the more the very nearest count.
        common: for speed over long sparse rows: features that more than this share of the
            training rows have find no neighbours, though cosines are those of all features; 1
            is exact. A query with such features alone finds nothing.

    >>> import numpy as np
    >>> targets = sparse.csr_matrix(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.float32))
    >>> memory = Memory(nearest=2).fit(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.float32), targets)
    >>> memory.scores(np.array([[1, 0]], dtype=np.float32)).toarray().round(3)
    array([[1.   , 0.261]], dtype=float32)
    """

    kind: ClassVar[str] = "memory"

    def __init__(self, *, nearest: int = 50, power: float = 3.0, common: float = 1.0) -> None:
        self.nearest, self.power, self.common = nearest, power, common
        self.targets_ = no_cells((0, 0))  # [N, L]
        self._sparse: Inverted | None = None
        self._dense: ExactIndex | None = None

    def fit(self, vectors: sparse.csr_matrix | NDArray[np.float32], targets: sparse.csr_matrix) -> Self:
        """Remember the training rows: vectors [N, F] or [N, d] and relevance [N, L]."""
        self._check()
        if vectors.shape[0] == 0:
            raise DataError("there are no training rows to remember")
        cells = as_targets(targets, "targets", (vectors.shape[0], targets.shape[1]))
        unit = _unit_rows(as_rows(vectors, "vectors")) if sparse.issparse(vectors) else _unit(vectors, "vectors")
        return self._remember(unit, cells)

    def neighbours(
        self,
        queries: sparse.csr_matrix | NDArray[np.float32],
        k: int,
        *,
        rows: NDArray[np.int64] | None = None,
    ) -> TopK:
        """Return the k training rows nearest to each query and their cosines, all above zero.

        ``rows`` [Q] names the training row a query is itself, -1 for none; it is not found.
        """
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        itself = None if rows is None else self._itself(rows, queries.shape[0])
        if self._sparse is not None:
            unit = _unit_rows(as_rows(queries, "queries", self._sparse.shape[1]))
            return self._sparse.search(unit, k, itself, "remembering")
        if self._dense is None:
            raise SettingError("the memory is empty", remedy=_EMPTY)
        if sparse.issparse(queries):
            raise DataError("queries must be an array like the training rows, not a sparse matrix")
        import torch

        vectors = torch.from_numpy(_unit(queries, "queries", self._dense.vectors.shape[1]))
        best = self._dense.search(vectors, k, itself)
        none = ~(best.scores > 0)
        return TopK(np.where(none, -1, best.ids), np.where(none, np.float32(-np.inf), best.scores))

    def scores(
        self, queries: sparse.csr_matrix | NDArray[np.float32], *, rows: NDArray[np.int64] | None = None
    ) -> sparse.csr_matrix:
        """Return [Q, L] float32 with every label that has a score, columns sorted; ``rows`` as in ``neighbours``."""
        found = self.neighbours(queries, self.nearest, rows=rows)
        real = found.ids >= 0
        weights = np.where(real, found.scores, 0).astype(np.float64) ** self.power * real
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
        parts = weights[real].astype(np.float32), found.ids[real], indptr
        votes = sparse.csr_matrix(parts, shape=(len(found.ids), self.targets_.shape[0]))
        scores = sparse.csr_matrix(votes @ self.targets_)
        scores.sort_indices()
        return scores

    def vectors(self) -> sparse.csr_matrix | NDArray[np.float32]:
        """Return the remembered rows, scaled to length 1."""
        if self._sparse is not None:
            return self._sparse.matrix()
        if self._dense is None:
            raise SettingError("the memory is empty", remedy=_EMPTY)
        found: NDArray[np.float32] = self._dense.vectors.numpy()
        return found

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder for ``load``, in place of an older one, or nothing."""
        vectors = self.vectors()
        packed = {"vectors": vectors} if isinstance(vectors, np.ndarray) else pack("vectors", vectors)
        write_part(folder, self.kind, self.config(), packed | pack("targets", self.targets_))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return what ``save`` wrote."""
        rows, targets = ([f"{name}.{part}" for part in PARTS] for name in ("vectors", "targets"))
        known = inspect.signature(cls).parameters
        settings, arrays = read_part(folder, cls.kind, known, [*rows, *targets], ["vectors", *targets])
        found = cls(**settings)
        found._check()
        vectors = arrays["vectors"] if "vectors" in arrays else unpack("vectors", arrays, folder)
        cells = unpack("targets", arrays, folder)
        if vectors.ndim != 2 or vectors.dtype != np.float32 or vectors.shape[0] != cells.shape[0]:
            raise DataError("vectors and targets do not fit each other", path=folder, remedy="copy the folder again")
        return found._remember(vectors, cells)

    def __repr__(self) -> str:
        return f"Memory(nearest={self.nearest!r}, power={self.power!r}, common={self.common!r})"

    def _check(self) -> None:
        if self.nearest < 1:
            raise SettingError(f"nearest must be at least 1, not {self.nearest}")
        if not 0 <= self.power < np.inf:
            raise SettingError(f"power must be at least 0, not {self.power}")
        if not 0 < self.common <= 1:
            raise SettingError(f"common must be above 0 and at most 1, not {self.common}", remedy="1 is exact")

    def _remember(self, unit: sparse.csr_matrix | NDArray[np.float32], targets: sparse.csr_matrix) -> Self:
        """Take over rows of length 1."""
        self.targets_, self._sparse, self._dense = targets, None, None
        if sparse.issparse(unit):
            from megalabel.heads._inverted import Inverted

            self._sparse = Inverted(unit, None, floor=0.0, common=self.common)
        else:
            import torch

            from megalabel.index import ExactIndex

            self._dense = ExactIndex(torch.from_numpy(unit))
        return self

    def _itself(self, rows: NDArray[np.int64], queries: int) -> sparse.csr_matrix:
        """Return the cells [Q, N] of queries that are training rows."""
        rows = np.asarray(rows)
        total = self.targets_.shape[0]
        if rows.shape != (queries,) or rows.min(initial=-1) < -1 or rows.max(initial=-1) >= total:
            raise DataError(f"rows must hold one number from -1 to {total - 1:,} for each of {queries:,} queries")
        own = rows >= 0
        parts = np.ones(own.sum(), dtype=np.float32), rows[own], np.concatenate([[0], np.cumsum(own)])
        return sparse.csr_matrix(parts, shape=(queries, total))


def _unit(vectors: Any, name: str, columns: int | None = None) -> NDArray[np.float32]:
    """Return rows scaled to length 1; zeros stay zeros."""
    found = np.ascontiguousarray(vectors, dtype=np.float32)
    if found.ndim != 2 or (columns is not None and found.shape[1] != columns):
        wanted = "a matrix" if columns is None else f"[Q, {columns}] like the training rows"
        raise DataError(f"{name} must be {wanted}, not {found.shape}")
    if not np.all(np.isfinite(found)):
        raise DataError(f"{name} holds NaN or infinity")
    lengths = np.linalg.norm(found.astype(np.float64), axis=1, keepdims=True)
    return (found / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return sparse rows scaled to length 1; empty rows stay empty."""
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    squares = np.bincount(owner, weights=rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
    lengths = np.sqrt(np.where(squares > 0, squares, 1))
    return sparse.csr_matrix(((rows.data / lengths[owner]).astype(np.float32), rows.indices, rows.indptr), rows.shape)
