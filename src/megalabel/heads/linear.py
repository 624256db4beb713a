"""Head ``linear``: one sparse linear classifier per label, trained on its positives and some negatives."""

from __future__ import annotations

import inspect
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt
from scipy import sparse

from megalabel.cost import in_main_memory
from megalabel.encoders._arrays import read_part, write_part
from megalabel.errors import DataError, SettingError
from megalabel.heads.answers import SearchedAnswers
from megalabel.heads.head import NGRAMS, FittedHead, RowSettings, check_bounds, register
from megalabel.heads.live import FewRows, GivenAnswers, spread_rows
from megalabel.heads.sparse.hard_negatives import nearest_labels
from megalabel.heads.sparse.one_against_all import Duals, cells_of, train_labels, with_rows
from megalabel.heads.sparse.rows import PARTS, as_rows, as_targets, no_cells, pack, unpack
from megalabel.settings import NonNegative, NonNegativeInt, PositiveFloat

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from megalabel.heads.answers import Answers
    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import Changed, FitData, NewTexts, Queries
    from megalabel.heads.live import Live, Part
    from megalabel.heads.sparse.inverted_index import InvertedIndex
    from megalabel.types import TopK

__all__ = ["Linear", "LinearSettings"]

_NEW_POINTS, _UNPRUNED = 10, 0.6  # measured: points that bring new n-grams, share of weights left by pruning
_WEIGHT_BYTES, _NEGATIVE_BYTES = 16, 48  # per weight, by rows and by columns; per hard negative, in six matrices


@register
class LinearSettings(RowSettings):
    """Sparse linear classifiers on n-grams."""

    kind: Literal["linear"] = "linear"
    C: PositiveFloat = 1.0
    mined: PositiveInt = 100  # hard negatives per row: wrong labels of its nearest other rows
    max_df: Annotated[float, Field(gt=0, le=1)] = 0.05  # more frequent n-grams are not used to find them; 1 is exact
    uniform: NonNegativeInt = 50  # random negatives per label
    rounds: PositiveInt = 2  # training rounds; each adds the best wrong labels of the last as negatives
    prune: NonNegative = 0.1  # smaller weights are dropped

    @property
    def reads_ngrams(self) -> bool:
        """Whether the head reads n-grams of texts."""
        return True

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the weights that pruning leaves, and the hard negatives while the head is fitted."""
        points = min(workload.points * workload.labels_per_point / workload.labels, _NEW_POINTS)
        weights = workload.labels * points * workload.ngrams_per_text * _UNPRUNED
        held = in_main_memory("weights of n-grams", weights, _WEIGHT_BYTES, pieces=2)
        mined = in_main_memory("negatives", workload.points * self.mined, _NEGATIVE_BYTES, pieces=6)
        return replace(super().cost(workload), held=(held,), fitting=(mined,))

    def load(self, folder: str | PathLike[str]) -> Linear:
        """Return the head written by its ``save``."""
        return Linear.load(folder)

    def fit(self, data: FitData) -> Linear:
        """Mine hard negatives with a memory of the same rows, then train."""
        rows, targets, exclude = self._cells(data)
        negatives = nearest_labels(rows, targets, exclude, self.mined, self.max_df)
        return self._untrained(data).fit(rows, targets, negatives, exclude)

    def refit(self, data: FitData, known: FittedHead, changed: Changed) -> Linear:
        """Train all labels for one more round if the known ones can go on, else the touched labels alone."""
        assert isinstance(known, Linear)
        rows, targets, exclude = self._cells(data)
        if changed.places is None or known.duals_ is None or self.labels != "none":
            return self._untrained(data).refit(known, rows, targets, exclude, changed.labels, max_df=self.max_df)
        fresh = np.setdiff1d(np.arange(rows.shape[0]), changed.places)
        negatives = nearest_labels(rows, targets, exclude, self.mined, self.max_df, fresh)
        return self._untrained(data).fit_further(known, rows, targets, negatives, exclude, changed.places)

    def _cells(self, data: FitData) -> tuple[sparse.csr_matrix, sparse.csr_matrix, sparse.csr_matrix]:
        """Return n-grams of the train rows, their targets, and the pairs that are neither right nor wrong."""
        train = data.rows(self)
        rows = data.features(NGRAMS, train)
        assert sparse.issparse(rows)
        return rows, train.without(train.filter).targets, train.excluded()

    def _untrained(self, data: FitData) -> Linear:
        return Linear(C=self.C, prune=self.prune, uniform=self.uniform, rounds=self.rounds, seed=data.seed)


class Linear(FittedHead):
    r"""Score labels by one sparse linear classifier each: s_l(x) = <w_l, x> + b_l.

    .. math::
        \min_{w_l, b_l} \tfrac12 (|w_l|^2 + b_l^2)
        + C \sum_i y_{il} \max(0, 1 - w_l^T x_i - b_l)^2 + (1 - y_{il}) \max(0, 1 + w_l^T x_i + b_l)^2

    over the positive rows of label l, with relevance y in (0, 1] (a soft target is the
    probability of a hard one), and its negatives, with y = 0: pairs given to ``fit``, such as
    :func:`hard_negatives`, and some random rows. In each further round the negatives are those
    inside the margin, which hold the classifier in place, and the best-scored wrong labels of each
    row; a round starts from the solution of the last. A row beyond the margin changes
    nothing, so the result approaches the classifier trained on all N rows.

    Each problem is solved in its dual, row by row (Hsieh et al., "A dual coordinate descent
    method for large-scale linear SVM", ICML 2008, algorithm 1, sections 3.1 and 3.2). Weights
    near zero are dropped, which keeps one-vs-all small with many labels (Babbar and
    Schoelkopf, "DiSMEC", WSDM 2017).

    A label without positive rows has no weights and a bias of -2, below that of a plain
    negative. The result is the same for any number of threads. A new label has its text as its one
    positive: its n-grams, scaled to the norm of rare labels, with their bias. A renamed label keeps its weights.

    Args:
        C: weight of the errors against the size of the weights.
        prune: weights smaller than this are dropped after training; 0 keeps all.
        uniform: random negatives per label in its first round, at least as many as it has positives; 0 for none.
        rounds: number of training rounds.
        per_row: wrong labels per row that join the negatives before a further round.
        tolerance: stop when no row of a label violates its optimum by more.
        passes: largest number of passes over the rows of a label.
        seed: seed of random negatives and of the order of rows.

    >>> x = sparse.csr_matrix(np.array([[1, 0], [0.8, 0.2], [0, 1]], dtype=np.float32))
    >>> y = sparse.csr_matrix(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32))
    >>> linear = Linear(uniform=3).fit(x, y)
    >>> linear.search(x, k=1).ids.tolist()
    [[0], [0], [1]]
    """

    kind: ClassVar[str] = "linear"

    def __init__(
        self,
        *,
        C: float = 1.0,
        prune: float = 0.1,
        uniform: int = 50,
        rounds: int = 2,
        per_row: int = 50,
        tolerance: float = 0.1,
        passes: int = 50,
        seed: int = 0,
    ) -> None:
        self.C, self.prune, self.uniform, self.rounds, self.per_row = C, prune, uniform, rounds, per_row
        self.tolerance, self.passes, self.seed = tolerance, passes, seed
        self.weights_: sparse.csr_matrix | None = None  # [L, F]
        self.bias_ = np.empty(0, dtype=np.float32)  # [L]
        self.duals_: Duals | None = None  # a further fit starts from them, until the head is finished
        self._index: InvertedIndex | None = None

    def fit(
        self,
        rows: sparse.csr_matrix,
        targets: sparse.csr_matrix,
        negatives: sparse.csr_matrix | None = None,
        exclude: sparse.csr_matrix | None = None,
    ) -> Self:
        """Train one classifier per label.

        Args:
            rows: [N, F] training rows.
            targets: [N, L] relevance in (0, 1].
            negatives: [N, L] pairs (row i, label l) where i is a negative of l; positives among them stay positive.
            exclude: [N, L] pairs that are neither.
        """
        self._check()
        x = as_rows(rows, "rows")
        if x.shape[0] == 0 or targets.shape[1] == 0:
            raise DataError(f"there is nothing to train on: {x.shape[0]} rows, {targets.shape[1]} labels")
        shape = x.shape[0], targets.shape[1]
        y = as_targets(targets, "targets", shape)
        if y.nnz == 0 or not (np.all(y.data > 0) and np.all(y.data <= 1)):
            raise DataError("targets must hold relevance in (0, 1], at least one")
        wrong, out = (
            no_cells(shape) if cells is None else as_targets(cells, name, shape)
            for name, cells in (("negatives", negatives), ("exclude", exclude))
        )
        self._round(x, y, wrong, out, duals=Duals.none(shape[1]))
        for _ in range(1, self.rounds):
            self._harder_round(x, y, no_cells(shape), out)
        return self

    def fit_further(
        self,
        known: Linear,
        rows: sparse.csr_matrix,
        targets: sparse.csr_matrix,
        negatives: sparse.csr_matrix,
        exclude: sparse.csr_matrix,
        places: NDArray[np.int64],
    ) -> Self:
        """Train all labels for one more round on more rows, starting from where another fit ended.

        Args:
            known: fitted on some of the rows, and not ``finished`` yet.
            rows: [N, F] training rows.
            targets: [N, L] relevance in (0, 1].
            negatives: [N, L] negatives of the further rows.
            exclude: [N, L] pairs that are neither right nor wrong.
            places: [n] where among the rows those of ``known`` are.
        """
        self._check()
        if known.duals_ is None:
            raise SettingError("this linear head is finished and cannot be trained further", remedy="call fit")
        x, shape = as_rows(rows, "rows"), targets.shape
        y, wrong, out = (as_targets(cells, name, shape) for cells, name in
                         ((targets, "targets"), (negatives, "negatives"), (exclude, "exclude")))  # fmt: skip
        self.weights_, self.bias_, self.duals_ = known.weights_, known.bias_, known.duals_.moved(places)
        return self._harder_round(x, y, wrong, out)

    def finished(self) -> Self:
        """Return the head without what a further fit starts from."""
        linear = copy(self)
        linear.duals_ = None
        return linear

    def _round(self, *cells: sparse.csr_matrix, duals: Duals) -> None:
        """Train all labels, starting from these duals; ``cells`` as in :func:`train_labels`."""
        self.weights_, self.bias_, self.duals_ = train_labels(
            *cells, duals=duals, uniform=self.uniform, C=self.C, tolerance=self.tolerance, passes=self.passes,
            prune=self.prune, seed=self.seed,
        )  # fmt: skip
        self._index = None

    def _harder_round(
        self, x: sparse.csr_matrix, y: sparse.csr_matrix, negatives: sparse.csr_matrix, exclude: sparse.csr_matrix
    ) -> Self:
        """Train all labels once more: on the negatives that have held, the best wrong labels of each row, and these."""
        assert self.duals_ is not None
        wrong = self.duals_.negatives(x.shape[0]) + self._mistakes(x, y, exclude) + negatives
        self._round(x, y, sparse.csr_matrix(wrong), exclude, duals=self.duals_)
        return self

    def refit(
        self,
        known: Linear,
        rows: sparse.csr_matrix,
        targets: sparse.csr_matrix,
        exclude: sparse.csr_matrix,
        labels: NDArray[np.int64],
        *,
        max_df: float = 1.0,
    ) -> Self:
        """Train these labels again, in one round; all others keep the classifiers of ``known``.

        Negatives are the labels of a row's nearest other rows, and those that ``known`` wrongly ranks high. Without
        the first, what ``known`` has learnt to tell apart would be forgotten.

        Args:
            known: classifiers over the same labels and features.
            rows: [N, F] training rows.
            targets: [N, L] relevance in (0, 1].
            exclude: [N, L] pairs that are neither right nor wrong.
            labels: ids of the labels to train.
            max_df: n-grams in more than this share of the rows are not used to find the nearest ones.

        >>> x = sparse.csr_matrix(np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32))
        >>> y = sparse.csr_matrix(np.array([[1, 0], [0, 0], [0, 0]], dtype=np.float32))
        >>> linear, none = Linear(uniform=3).fit(x, y), sparse.csr_matrix((3, 2), dtype=np.float32)
        >>> y = sparse.csr_matrix(np.array([[1, 0], [0, 1], [0, 1]], dtype=np.float32))
        >>> more = Linear(uniform=3).refit(linear, x, y, none, np.array([1]))
        >>> more.search(x, k=1).ids.tolist(), bool(abs(more.weights_[0] - linear.weights_[0]).max() == 0)
        ([[0], [1], [1]], True)
        """
        self._check()
        x, weights, bias = as_rows(rows, "rows"), known._ready(), known.bias_.copy()
        y, out = (as_targets(cells, name, (x.shape[0], len(bias)))
                  for cells, name in ((targets, "targets"), (exclude, "exclude")))  # fmt: skip
        some = copy(self)
        some.weights_, some.bias_, some._index = weights, bias, None
        wrong = nearest_labels(x, y, out, 2 * self.per_row, max_df) + some._mistakes(x, y, out)
        some._round(x, *(part[:, labels] for part in (y, wrong, out)), duals=Duals.none(len(labels)))
        bias[labels] = some.bias_
        self.weights_, self.bias_, self._index = with_rows(weights, labels, some._ready()), bias, None
        return self

    def scores(self, queries: sparse.csr_matrix, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [Q, C] of some labels of each query; candidate -1 has -inf.

        They equal those of ``search`` bit for bit.
        """
        weights = self._ready()
        x = as_rows(queries, "queries", weights.shape[1])
        labels = np.ascontiguousarray(candidates, dtype=np.int64)
        if labels.ndim != 2 or len(labels) != x.shape[0]:
            raise DataError(f"candidates must be [{x.shape[0]}, C], one row for each query, not {labels.shape}")
        if labels.min(initial=-1) < -1 or labels.max(initial=-1) >= weights.shape[0]:
            raise DataError(f"candidates must lie in -1 to {weights.shape[0] - 1:,}")
        return self._inverted_index().scores(x, labels)

    def search(self, queries: sparse.csr_matrix, k: int, exclude: sparse.csr_matrix | None = None) -> TopK:
        """Return the k best labels of each query [Q, F], best first, ties by id.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k.
        """
        weights = self._ready()
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        x = as_rows(queries, "queries", weights.shape[1])
        out = None if exclude is None else as_targets(exclude, "exclude", (x.shape[0], weights.shape[0]))
        return self._inverted_index().search(x, k, out, "searching")

    def without(self, labels: NDArray[np.int64]) -> Self:
        """Return a head that never returns these labels and shares everything else with this one."""
        linear = copy(self)
        linear._index = self._inverted_index().without(labels)
        return linear

    def answers(self, queries: Queries, live: Live) -> Answers:
        """Score the n-grams of the queries."""
        rows = queries.features(NGRAMS)
        if live.unchanged:
            return SearchedAnswers(self, rows)
        trained = live.cached("trained", lambda: self.without(live.hidden) if len(live.hidden) else self)

        def changed() -> Answers:
            weights = live.cached("weights", lambda: FewRows(live.parts["weights"]))
            return GivenAnswers(weights.products(rows) + live.parts["bias"])

        return live.merged(SearchedAnswers(trained, rows), changed)

    def new_rows(self, new: NewTexts) -> dict[str, Part]:
        """Return a classifier for each new text; a renamed label keeps its classifier."""
        weights = self._ready()
        if not new.added:
            return {"weights": sparse.csr_matrix(weights[new.ids]), "bias": self.bias_[new.ids]}
        norm = float(np.median(np.sqrt(np.asarray(weights[new.rare].power(2).sum(axis=1)))))
        bias = float(np.median(self.bias_[new.rare]))
        rows = sparse.csr_matrix(new.features(NGRAMS) * norm)
        return {"weights": rows, "bias": np.full(len(new.texts), bias, dtype=self.bias_.dtype)}

    def grown(self, live: Live) -> Linear:
        """Return classifiers of all labels."""
        if live.total == live.first and not len(live.ids):
            return self
        linear = copy(self)
        linear._index = None
        linear.weights_ = spread_rows(self._ready(), live.parts.get("weights"), live)
        linear.bias_ = np.concatenate([self.bias_, np.zeros(live.total - len(self.bias_), dtype=np.float32)])
        if len(live.ids):
            linear.bias_[live.ids] = live.parts["bias"]
        return linear

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder for ``load`` completely or not at all, replacing an older one."""
        duals = {} if self.duals_ is None else self.duals_.arrays()
        write_part(folder, self.kind, self.config(), pack("weights", self._ready()) | {"bias": self.bias_} | duals)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the head written by ``save``."""
        wanted = ["bias", *(f"weights.{part}" for part in PARTS)]
        known = inspect.signature(cls).parameters
        settings, arrays = read_part(folder, cls.kind, known, wanted, [*wanted, *Duals.none(0).arrays()])
        linear = cls(**settings)
        linear._check()
        linear.weights_, linear.bias_ = unpack("weights", arrays, folder), arrays["bias"]
        if linear.bias_.shape != (linear.weights_.shape[0],) or linear.bias_.dtype != np.float32:
            raise DataError(f"bias is {linear.bias_.shape}, not [{linear.weights_.shape[0]}]", path=folder)
        linear.duals_ = Duals.of(arrays, len(linear.bias_), folder)
        return linear

    def __repr__(self) -> str:
        return f"Linear({', '.join(f'{name}={value!r}' for name, value in self.config().items() if name != 'kind')})"

    def _mistakes(self, x: sparse.csr_matrix, y: sparse.csr_matrix, exclude: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return the best labels [N, L] of each row that are neither positive nor excluded."""
        return cells_of(self.search(x, self.per_row, sparse.csr_matrix(abs(y) + abs(exclude))).ids, y.shape[1])

    def _inverted_index(self) -> InvertedIndex:
        """Return the inverted index over the weights, built on first use."""
        from megalabel.heads.sparse.inverted_index import InvertedIndex

        if self._index is None:
            self._index = InvertedIndex(self._ready(), self.bias_, floor=-np.inf)
        return self._index

    def _ready(self) -> sparse.csr_matrix:
        if self.weights_ is None:
            raise SettingError("there are no weights yet", remedy="call fit first")
        return self.weights_

    def _check(self) -> None:
        least = {"prune": 0, "uniform": 0, "rounds": 1, "per_row": 1, "passes": 1, "seed": 0}
        check_bounds(self, ("C", "tolerance"), least)
