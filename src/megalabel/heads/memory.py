"""Head ``memory``: a query gets the labels of the nearest train queries."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from scipy import sparse

from megalabel.cost import tensor
from megalabel.encoders._arrays import read_part, write_part
from megalabel.errors import DataError, SettingError
from megalabel.heads.answers import StoredAnswers
from megalabel.heads.head import NGRAMS, FittedHead, RowSettings, register
from megalabel.heads.live import FewRows
from megalabel.heads.sparse.rows import PARTS, as_rows, as_targets, no_cells, pack, unit_rows, unpack
from megalabel.settings import PositiveFloat
from megalabel.types import TopK

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from megalabel.heads.answers import Answers
    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import FitData, NewTexts, Queries
    from megalabel.heads.live import Live, Part
    from megalabel.heads.sparse.inverted_index import InvertedIndex
    from megalabel.index import ExactIndex

__all__ = ["Memory", "MemorySettings"]

TWINS = 14  # rows equal to a query that are looked for
EQUAL = 1 - 1e-5  # cosine of two texts with the same features, rounded
_EMPTY = "call fit with the training rows first"


@register
class MemorySettings(RowSettings):
    """Labels of the nearest train rows."""

    kind: Literal["memory"] = "memory"
    features: str = NGRAMS  # what is compared: n-grams, or the query vectors of the dense head with this name
    neighbours: PositiveInt = 50
    power: PositiveFloat = 3.0
    max_df: Annotated[float, Field(gt=0, le=1)] = (
        0.05  # more frequent n-grams are not used to find neighbours; 1 is exact
    )
    feature_keys: ClassVar[tuple[str, ...]] = ("features",)
    renamed: ClassVar[dict[str, str]] = {**RowSettings.renamed, "nearest": "neighbours"}

    @model_validator(mode="after")
    def _check_max_df(self) -> Self:
        self.require(self.reads_ngrams, "max_df", f"features is {self.features}, so vectors are compared, not n-grams")
        return self

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the stored rows: n-grams, or vectors of a dense head."""
        cost = super().cost(workload)
        if self.reads_ngrams:
            return cost
        rows = workload.points + (workload.labels if self.labels != "none" else 0)
        vectors = tensor("remembered vectors", rows, workload.head_dim(self.features), host=True)
        return replace(cost, held=(vectors,))

    def load(self, folder: str | PathLike[str]) -> Memory:
        """Return the head written by its ``save``."""
        return Memory.load(folder)

    def fit(self, data: FitData) -> Memory:
        """Store the train rows."""
        train = data.rows(self)
        memory = Memory(neighbours=self.neighbours, power=self.power, max_df=self.max_df, features=self.features)
        return memory.fit(data.features(self.features, train), train.without(train.filter).targets)


class Memory(FittedHead):
    r"""Score labels by the training queries nearest to a query.

    .. math:: s_l(q) = \frac{\sum_{i \in N(q)} \cos(q, x_i)^p \, y_{il}}{\sum_{i \in N(q)} \cos(q, x_i)^p}

    with N(q) the ``neighbours`` training rows of largest cosine, among those above zero. Scores
    lie in [0, 1]. Labels without a training row have no score. Weighted k-nearest-neighbour voting (Dudani 1976).

    Vectors are sparse rows (:class:`megalabel.encoders.SparseEncoder`) or a float32 array
    [N, d], such as the vectors of a dense head; they are scaled to length 1. Search is exact,
    by an inverted index for sparse rows and by blocked products for dense ones; ties go to
    the lower row.

    Args:
        neighbours: number of train rows that vote.
        power: p; the larger, the more the nearest rows dominate.
        max_df: for speed with long sparse rows, features in more than this share of the train
            rows are not used to find neighbours; cosines still use all features. 1 is exact. A
            query that has only such features finds nothing.
        features: features of the rows, n-grams or the name of a dense head; read by the network.

    The text of a new label becomes a train row with that label.

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
        self._sparse: InvertedIndex | None = None
        self._dense: ExactIndex | None = None

    def fit(self, vectors: sparse.csr_matrix | NDArray[np.float32], targets: sparse.csr_matrix) -> Self:
        """Store the training rows: vectors [N, F] or [N, d] and relevance [N, L]."""
        self._check()
        if vectors.shape[0] == 0:
            raise DataError("there are no training rows to store")
        cells = as_targets(targets, "targets", (vectors.shape[0], targets.shape[1]))
        unit = unit_rows(as_rows(vectors, "vectors")) if sparse.issparse(vectors) else _unit(vectors, "vectors")
        return self._store(unit, cells)

    def search(
        self,
        queries: sparse.csr_matrix | NDArray[np.float32],
        k: int,
        *,
        rows: NDArray[np.int64] | None = None,
    ) -> TopK:
        """Return the k training rows nearest to each query and their cosines, all above zero.

        ``rows`` [Q] is the training row that a query is itself, which is left out; -1 for none.
        """
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        itself = None if rows is None else self._itself(rows, queries.shape[0])
        if self._sparse is not None:
            unit = unit_rows(as_rows(queries, "queries", self._sparse.shape[1]))
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
        return self._votes(self.search(queries, self.neighbours, rows=rows), self.targets_)

    def _votes(self, nearest: TopK, targets: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return the targets [Q, L] of the neighbours, weighted by numbers that sum to 1."""
        from megalabel.heads.sparse.votes import count_votes

        real = nearest.ids >= 0
        weights = np.where(real, nearest.scores, 0).astype(np.float64) ** self.power * real
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        cells = targets.indptr, targets.indices, targets.data
        indptr, labels, sums = count_votes(nearest.ids, weights.astype(np.float32), cells, targets.shape[1])
        votes = sparse.csr_matrix((sums, labels, indptr), shape=(len(nearest.ids), targets.shape[1]))
        votes.has_canonical_format = True
        return votes

    def answers(self, queries: Queries, live: Live) -> Answers:
        """Let the neighbours vote; the texts of added labels are neighbours too."""
        features = queries.features(self.features)
        nearest = self._others(features) if queries.seen else self.search(features, self.neighbours)
        votes = self._votes(nearest, self.targets_) if live.unchanged else self._live_votes(features, nearest, live)
        return StoredAnswers(votes)

    def _others(self, queries: Any) -> TopK:
        """Return the nearest rows without those equal to the query: itself, if it was trained on, and its twins."""
        nearest = self.search(queries, self.neighbours + TWINS)
        equal = nearest.scores > EQUAL
        order = np.argsort(equal, axis=1, kind="stable")[:, : self.neighbours]
        ids, scores = np.where(equal, -1, nearest.ids), np.where(equal, np.float32(-np.inf), nearest.scores)
        return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))

    def _live_votes(self, queries: Any, nearest: TopK, live: Live) -> sparse.csr_matrix:
        """Return the votes of the nearest rows, with the texts of added labels as further train rows."""
        points = self.targets_.shape[0]
        added = np.flatnonzero(live.added)
        if len(added):
            cosines = self._cosines(queries, added, live)
            ids = np.where(cosines > 0, np.arange(points, points + len(added)), -1)
            ids = np.concatenate([nearest.ids, ids], axis=1)
            scores = np.concatenate([nearest.scores, np.where(cosines > 0, cosines, np.float32(-np.inf))], axis=1)
            order = np.lexsort((ids, -scores), axis=1)[:, : self.neighbours]
            nearest = TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))
        votes = self._votes(nearest, live.cached("targets", lambda: self._live_targets(live)))
        votes.data[np.isin(votes.indices, live.removed)] = 0
        votes.eliminate_zeros()
        return votes

    def _cosines(self, queries: Any, added: NDArray[np.int64], live: Live) -> NDArray[np.float32]:
        """Return the cosines [Q, a] of queries and the texts of added labels."""
        rows: Any = live.cached("rows", lambda: live.parts["row"][added])
        if isinstance(rows, sparse.csr_matrix):
            return live.cached("few", lambda: FewRows(rows)).products(queries)
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
        """Return the features of the texts, scaled to length 1 if they are dense."""
        features: Any = new.features(self.features)
        return {"row": features if isinstance(features, sparse.csr_matrix) else _unit(features, "vectors")}

    def grown(self, live: Live) -> Memory:
        """Return a memory that also holds the texts of added labels."""
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
        """Return the stored rows, scaled to length 1."""
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
        """Write a folder for ``load`` completely or not at all, replacing an older one."""
        vectors = self.vectors()
        packed = {"vectors": vectors} if isinstance(vectors, np.ndarray) else pack("vectors", vectors)
        write_part(folder, self.kind, self.config(), packed | pack("targets", self.targets_))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the head written by ``save``."""
        rows, targets = ([f"{name}.{part}" for part in PARTS] for name in ("vectors", "targets"))
        known = inspect.signature(cls).parameters
        settings, arrays = read_part(folder, cls.kind, known, [*rows, *targets], ["vectors", *targets])
        memory = cls(**settings)
        memory._check()
        vectors = arrays["vectors"] if "vectors" in arrays else unpack("vectors", arrays, folder)
        cells = unpack("targets", arrays, folder)
        if vectors.ndim != 2 or vectors.dtype != np.float32 or vectors.shape[0] != cells.shape[0]:
            raise DataError("vectors and targets do not fit each other", path=folder, remedy="copy the folder again")
        return memory._store(vectors, cells)

    def __repr__(self) -> str:
        return f"Memory({', '.join(f'{name}={value!r}' for name, value in self._arguments().items())})"

    def _check(self) -> None:
        if self.neighbours < 1:
            raise SettingError(f"neighbours must be at least 1, not {self.neighbours}")
        if not 0 <= self.power < np.inf:
            raise SettingError(f"power must be at least 0, not {self.power}")
        if not 0 < self.max_df <= 1:
            raise SettingError(f"max_df must be above 0 and at most 1, not {self.max_df}", remedy="1 is exact")

    def _store(self, unit: sparse.csr_matrix | NDArray[np.float32], targets: sparse.csr_matrix) -> Self:
        """Store rows of length 1."""
        self.targets_, self._sparse, self._dense = targets, None, None
        if sparse.issparse(unit):
            from megalabel.heads.sparse.inverted_index import InvertedIndex

            self._sparse = InvertedIndex(unit, None, floor=0.0, max_df=self.max_df)
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
        known = rows >= 0
        parts = np.ones(known.sum(), dtype=np.float32), rows[known], np.concatenate([[0], np.cumsum(known)])
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
