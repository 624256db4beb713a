"""Head ``memory``: a query has the labels of the train queries most like it."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt
from scipy import sparse

from megalabel.encoders._arrays import read_part, write_part
from megalabel.errors import DataError, SettingError
from megalabel.heads._rows import PARTS, as_rows, as_targets, no_cells, pack, unpack
from megalabel.heads.answers import StoredAnswers
from megalabel.heads.cost import tensor
from megalabel.heads.head import NGRAMS, FittedHead, RowSettings, register
from megalabel.heads.live import FewRows
from megalabel.settings import PositiveFloat
from megalabel.types import TopK

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from megalabel.heads._inverted import Inverted
    from megalabel.heads.answers import Answers
    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import FitData, NewTexts, Queries
    from megalabel.heads.live import Live, Part
    from megalabel.index import ExactIndex

__all__ = ["Memory", "MemorySettings"]

_EMPTY = "call fit with the training rows first"


@register
class MemorySettings(RowSettings):
    """Labels of the nearest train rows."""

    kind: Literal["memory"] = "memory"
    features: str = NGRAMS  # what is compared: n-grams, or the query vectors of the dense head with this name
    neighbours: PositiveInt = 50
    power: PositiveFloat = 3.0
    max_df: Annotated[float, Field(gt=0, le=1)] = 0.05  # n-grams of more rows find no neighbours; 1 is exact
    renamed: ClassVar[dict[str, str]] = {**RowSettings.renamed, "nearest": "neighbours"}

    @property
    def reads_ngrams(self) -> bool:
        """Whether the head reads n-grams of texts."""
        return self.features == NGRAMS

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the remembered rows: n-grams, or vectors of a dense head."""
        cost = super().cost(workload)
        if self.reads_ngrams:
            return cost
        rows = workload.points + (workload.labels if self.labels != "none" else 0)
        vectors = tensor("remembered vectors", rows, workload.head_dim(self.features), host=True)
        return replace(cost, held=(vectors,))

    def load(self, folder: str | PathLike[str]) -> Memory:
        """Return the head that its ``save`` wrote."""
        return Memory.load(folder)

    def fit(self, data: FitData) -> Memory:
        """Remember the train rows."""
        train = data.rows(self)
        memory = Memory(neighbours=self.neighbours, power=self.power, max_df=self.max_df, features=self.features)
        return memory.fit(data.features(self.features, train), train.without(train.filter).targets)


class Memory(FittedHead):
    r"""Score labels by the training queries nearest to a query.

    .. math:: s_l(q) = \frac{\sum_{i \in N(q)} \cos(q, x_i)^p \, y_{il}}{\sum_{i \in N(q)} \cos(q, x_i)^p}

    with N(q) the ``neighbours`` training rows of largest cosine, among those above zero. Scores
    lie in [0, 1]. It knows what it has seen and nothing else: labels without a training row
    have no score. Weighted k-nearest-neighbour voting (Dudani 1976).

    Vectors are sparse rows (:class:`megalabel.encoders.SparseEncoder`) or a float32 array
    [N, d], such as a model's own space; they are scaled to length 1 here. Search is exact,
    sparse by the rows of each feature, dense by blocked products; equal cosines go to the
    lower row.

    Args:
        neighbours: train rows that have a say.
        power: p; the larger, the more the very nearest count.
        max_df: for speed over long sparse rows: features that more than this share of the
            train rows have find no neighbours, though cosines are those of all features; 1
            is exact. A query with such features alone finds nothing.
        features: what the rows are, for the network that feeds the head: n-grams, or the name of a dense head.

    A new label is a train row that carries it: its own text.

    >>> import numpy as np
    >>> targets = sparse.csr_matrix(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.float32))
    >>> memory = Memory(neighbours=2).fit(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.float32), targets)
    >>> memory.scores(np.array([[1, 0]], dtype=np.float32)).toarray().round(3)
    array([[1.   , 0.261]], dtype=float32)
    """

    kind: ClassVar[str] = "memory"

    def __init__(
        self, *, neighbours: int = 50, power: float = 3.0, max_df: float = 1.0, features: str = NGRAMS
    ) -> None:
        self.neighbours, self.power, self.max_df, self.features = neighbours, power, max_df, features
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

    def search(
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
        """Return [Q, L] float32 with every label that has a score, columns sorted; ``rows`` as in ``search``."""
        nearest = self.search(queries, self.neighbours, rows=rows)
        scores = sparse.csr_matrix(self._votes(nearest, self.targets_.shape[0]) @ self.targets_)
        scores.sort_indices()
        return scores

    def _votes(self, nearest: TopK, rows: int) -> sparse.csr_matrix:
        """Return the weight [Q, rows] of each neighbour, which sum to 1."""
        real = nearest.ids >= 0
        weights = np.where(real, nearest.scores, 0).astype(np.float64) ** self.power * real
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
        parts = weights[real].astype(np.float32), nearest.ids[real], indptr
        return sparse.csr_matrix(parts, shape=(len(nearest.ids), rows))

    def answers(self, queries: Queries, live: Live) -> Answers:
        """Let the neighbours vote; the texts of added labels are neighbours too."""
        features = queries.features(self.features)
        return StoredAnswers(self.scores(features) if live.unchanged else self._live_scores(features, live))

    def _live_scores(self, queries: Any, live: Live) -> sparse.csr_matrix:
        """Return what :meth:`scores` would if the texts of added labels were train rows."""
        nearest = self.search(queries, self.neighbours)
        points = self.targets_.shape[0]
        added = np.flatnonzero(live.added)
        if len(added):
            cosines = self._cosines(queries, added, live)
            ids = np.where(cosines > 0, np.arange(points, points + len(added)), -1)
            ids = np.concatenate([nearest.ids, ids], axis=1)
            scores = np.concatenate([nearest.scores, np.where(cosines > 0, cosines, np.float32(-np.inf))], axis=1)
            order = np.lexsort((ids, -scores), axis=1)[:, : self.neighbours]
            nearest = TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))
        votes = self._votes(nearest, points + len(added))
        votes = sparse.csr_matrix(votes @ live.once("targets", lambda: self._live_targets(live)))
        votes.data[np.isin(votes.indices, live.removed)] = 0
        votes.eliminate_zeros()
        votes.sort_indices()
        return votes

    def _cosines(self, queries: Any, added: NDArray[np.int64], live: Live) -> NDArray[np.float32]:
        """Return the cosines [Q, a] of queries and the texts of added labels."""
        rows: Any = live.once("rows", lambda: live.parts["row"][added])
        if isinstance(rows, sparse.csr_matrix):
            return live.once("few", lambda: FewRows(rows)).products(queries)
        lengths = np.linalg.norm(queries, axis=1, keepdims=True)
        return np.asarray(queries / np.where(lengths > 0, lengths, 1) @ rows.T, dtype=np.float32)

    def _live_targets(self, live: Live) -> sparse.csr_matrix:
        """Return the targets of the train rows and of the texts of added labels."""
        known, added = self.targets_, live.ids[np.flatnonzero(live.added)]
        ones = np.ones(len(added), dtype=np.float32)
        indptr = np.concatenate([known.indptr, known.nnz + 1 + np.arange(len(added))])
        parts = np.concatenate([known.data, ones]), np.concatenate([known.indices, added]), indptr
        return sparse.csr_matrix(parts, shape=(known.shape[0] + len(added), live.total))

    def new_rows(self, new: NewTexts) -> dict[str, Part]:
        """Keep the features of the texts, scaled to length 1 if they are dense."""
        features: Any = new.features(self.features)
        return {"row": features if isinstance(features, sparse.csr_matrix) else _unit(features, "vectors")}

    def grown(self, live: Live) -> Memory:
        """Return a memory that also remembers the texts of added labels."""
        if live.total == live.first:
            return self
        added = np.flatnonzero(live.added)
        rows: Any = self.vectors()
        if len(added):
            both = [rows, live.parts["row"][added]]
            rows = sparse.csr_matrix(sparse.vstack(both)) if sparse.issparse(rows) else np.concatenate(both)
        return Memory(**self._arguments()).fit(rows, self._live_targets(live))

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def vectors(self) -> sparse.csr_matrix | NDArray[np.float32]:
        """Return the remembered rows, scaled to length 1."""
        if self._sparse is not None:
            return self._sparse.matrix()
        if self._dense is None:
            raise SettingError("the memory is empty", remedy=_EMPTY)
        vectors: NDArray[np.float32] = self._dense.vectors.numpy()
        return vectors

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON."""
        return {"kind": self.kind} | self._arguments()

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
        memory = cls(**settings)
        memory._check()
        vectors = arrays["vectors"] if "vectors" in arrays else unpack("vectors", arrays, folder)
        cells = unpack("targets", arrays, folder)
        if vectors.ndim != 2 or vectors.dtype != np.float32 or vectors.shape[0] != cells.shape[0]:
            raise DataError("vectors and targets do not fit each other", path=folder, remedy="copy the folder again")
        return memory._remember(vectors, cells)

    def __repr__(self) -> str:
        return f"Memory({', '.join(f'{name}={value!r}' for name, value in self._arguments().items())})"

    def _check(self) -> None:
        if self.neighbours < 1:
            raise SettingError(f"neighbours must be at least 1, not {self.neighbours}")
        if not 0 <= self.power < np.inf:
            raise SettingError(f"power must be at least 0, not {self.power}")
        if not 0 < self.max_df <= 1:
            raise SettingError(f"max_df must be above 0 and at most 1, not {self.max_df}", remedy="1 is exact")

    def _remember(self, unit: sparse.csr_matrix | NDArray[np.float32], targets: sparse.csr_matrix) -> Self:
        """Take over rows of length 1."""
        self.targets_, self._sparse, self._dense = targets, None, None
        if sparse.issparse(unit):
            from megalabel.heads._inverted import Inverted

            self._sparse = Inverted(unit, None, floor=0.0, max_df=self.max_df)
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
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or (columns is not None and rows.shape[1] != columns):
        expected = "a matrix" if columns is None else f"[Q, {columns}] like the train rows"
        raise DataError(f"{name} must be {expected}, not {rows.shape}")
    if not np.all(np.isfinite(rows)):
        raise DataError(f"{name} holds NaN or infinity")
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return sparse rows scaled to length 1; empty rows stay empty."""
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    squares = np.bincount(owner, weights=rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
    lengths = np.sqrt(np.where(squares > 0, squares, 1))
    return sparse.csr_matrix(((rows.data / lengths[owner]).astype(np.float32), rows.indices, rows.indptr), rows.shape)
