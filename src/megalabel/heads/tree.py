"""Head ``tree``: sparse linear rankers in a tree of labels, searched by beam (XR-Linear)."""

from __future__ import annotations

import inspect
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from scipy import sparse

from megalabel.cost import in_main_memory
from megalabel.encoders._arrays import read_part, write_part
from megalabel.errors import DataError, SettingError
from megalabel.graphs import pifa
from megalabel.heads.answers import SearchedAnswers
from megalabel.heads.head import NGRAMS, FittedHead, RowSettings, check_bounds, register
from megalabel.heads.live import FewRows, GivenAnswers, spread_rows
from megalabel.heads.sparse.label_tree import BELOW, Level, Solver, grow_tree, join, paths, root, row_lengths, unit_rows
from megalabel.heads.sparse.rows import PARTS, as_rows, as_targets, no_cells, pack, unpack
from megalabel.settings import NonNegative, NonNegativeInt, PositiveFloat
from megalabel.types import TopK

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from numpy.typing import NDArray

    from megalabel.heads.answers import Answers
    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import FitData, NewTexts, Queries
    from megalabel.heads.live import Live, Part

__all__ = ["Tree", "TreeSettings"]

SMALLEST = np.float32(1e-4)  # products far below this are all alike
_NEW_POINTS, _UNPRUNED = 10, 0.6  # measured: points that bring new n-grams, share of weights left by pruning
_WEIGHT_BYTES = 20  # per weight, by nodes and by features


@register
class TreeSettings(RowSettings):
    """Sparse linear rankers in a tree of labels."""

    kind: Literal["tree"] = "tree"
    vectors: str | None = None  # dense head whose query vectors stand beside the n-grams and cluster the labels
    leaf: PositiveInt = 100  # largest number of labels of a cluster
    branches: Annotated[int, Field(ge=2)] = 16  # largest number of children of a node, a power of two
    trees: PositiveInt = 1  # each with clusters of its own; their scores are averaged
    C: PositiveFloat = 1.0  # weight of the errors of positive rows
    C_negative: PositiveFloat = 1.0  # that of negative rows
    mined: NonNegativeInt = 0  # nodes the tree so far ranks best, whose children are trained on a row too
    prune: NonNegative = 0.1  # smaller weights of n-grams are dropped
    beam: PositiveInt = 10  # nodes of a level whose children are scored
    feature_keys: ClassVar[tuple[str, ...]] = ("vectors",)

    @property
    def reads_ngrams(self) -> bool:
        """Whether the head reads n-grams of texts."""
        return True

    @model_validator(mode="after")
    def _check_tree(self) -> Self:
        if self.branches & (self.branches - 1):
            raise ValueError(f"branches must be a power of two such as 8, 16 or 32, not {self.branches}")
        if self.vectors == NGRAMS:
            raise ValueError("vectors names a dense head: n-grams are always read")
        return self

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the weights that pruning leaves, and the features of rows and labels during fitting."""
        points = min(workload.points * workload.labels_per_point / workload.labels, _NEW_POINTS)
        dense = 0 if self.vectors is None else workload.head_dim(self.vectors)
        per_label = points * workload.ngrams_per_text * _UNPRUNED + dense
        held = in_main_memory("weights of the tree", self.trees * workload.labels * per_label, _WEIGHT_BYTES, pieces=3)
        cells = workload.points * workload.labels_per_point * workload.ngrams_per_text * 4
        means = in_main_memory("features of labels", cells if dense == 0 else workload.labels * dense, 4, pieces=2)
        return replace(super().cost(workload), held=(held,), fitting=(means,))

    def load(self, folder: str | PathLike[str]) -> Tree:
        """Return the head written by its ``save``."""
        return Tree.load(folder)

    def fit(self, data: FitData) -> Tree:
        """Cluster the labels and train a ranker for every node."""
        train = data.rows(self)
        tree = Tree(
            vectors=self.vectors, leaf=self.leaf, branches=self.branches, trees=self.trees, C=self.C,
            C_negative=self.C_negative, mined=self.mined, prune=self.prune, beam=self.beam, seed=data.seed,
        )  # fmt: skip
        rows = data.features(NGRAMS, train)
        vectors = None if self.vectors is None else np.asarray(data.features(self.vectors, train))
        assert sparse.issparse(rows)
        return tree.fit(rows, train.without(train.filter).targets, train.excluded(), vectors)


def _as_scores(products: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores of labels, given the products p along their paths."""
    return np.asarray(np.log(products + SMALLEST), dtype=np.float32)


class Tree(FittedHead):
    r"""Score labels along a tree of clusters: the product of what the rankers on the way to a label say, as a log.

    .. math::
        s_l(x) = \log(10^{-4} + p_l(x)), \quad p_l(x) = \prod_{n \in \text{path}(l)} h(w_n^T x + b_n), \quad
        h(v) = \exp(-\max(0, 1 - v)^3)

    The logarithm keeps the order of the products, and can be added to the scores of other heads: most products are
    close to 0, so that sums with them would see little but the few largest. The constant bounds what a label
    that one ranker rejects can lose.

    Labels, described by the mean of their points (PIFA), are cut into balanced clusters of at most ``leaf``;
    ``branches`` clusters at a time form a node of the level above. The ranker of a node minimises

    .. math::
        \tfrac12 (|w|^2 + b^2) + \sum_i C y_i \max(0, 1 - w^T x_i - b)^2
        + C_- (1 - y_i) \max(0, 1 + w^T x_i + b)^2

    over the rows with a label under its *parent* (teacher-forcing negatives); y is 1 if a label of
    the row is under the node itself. With ``mined``, a row also trains the children of the nodes that the levels above
    rank best for it, right or wrong (matcher-aware negatives). Search goes down the tree and keeps the best ``beam``
    nodes of every level; a beam as wide as the tree finds the best labels of all.

    XR-Linear of PECOS (Yu et al., "PECOS: Prediction for enormous and correlated output spaces", JMLR 2022,
    sections 3 and 4); with the vectors of a trained encoder beside the n-grams it is the ranker of
    XR-Transformer (Zhang et al., "Fast multi-resolution transformer fine-tuning for extreme multi-label text
    classification", NeurIPS 2021, section 3.3). The solver is that of :class:`megalabel.heads.Linear`.

    A label without positive rows has no weights and a bias of -2. The result is the same for any number of
    threads. A new label joins the cluster where its own text leads, with its text as its one positive: its features,
    scaled to the norm of rare labels, with their bias. A renamed label keeps its place and its weights.

    Args:
        vectors: dense head whose query vectors are read beside the n-grams; read by the network.
        leaf: largest number of labels per cluster.
        branches: largest number of clusters or nodes under a node, a power of two.
        trees: number of trees over different clusters; p is their mean, and each proposes labels.
        C: weight of the errors of positive rows against the size of the weights.
        C_negative: that of the errors of negative rows.
        mined: best-ranked nodes of a row whose children it trains; 0 for teacher forcing alone.
        prune: weights of n-grams smaller than this are dropped after training; 0 keeps all.
        beam: nodes of each level whose children are scored.
        tolerance: stop when no row of a node violates its optimum by more.
        passes: largest number of passes over the rows of a node.
        seed: seed of clusters and of the order of rows.

    >>> x = sparse.csr_matrix(np.array([[1, 0, 0], [0.8, 0.2, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32))
    >>> y = sparse.csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32))
    >>> tree = Tree(leaf=1, branches=2).fit(x, y)
    >>> tree.search(x, k=1).ids.tolist()
    [[0], [0], [1], [2]]
    """

    kind: ClassVar[str] = "tree"

    def __init__(
        self,
        *,
        vectors: str | None = None,
        leaf: int = 100,
        branches: int = 16,
        trees: int = 1,
        C: float = 1.0,
        C_negative: float = 1.0,
        mined: int = 0,
        prune: float = 0.1,
        beam: int = 10,
        tolerance: float = 0.1,
        passes: int = 50,
        seed: int = 0,
    ) -> None:
        self.vectors, self.leaf, self.branches, self.trees = vectors, leaf, branches, trees
        self.C, self.C_negative, self.mined, self.prune, self.beam = C, C_negative, mined, prune, beam
        self.tolerance, self.passes, self.seed = tolerance, passes, seed
        self.trees_: list[list[Level]] = []  # of each tree, from the top; the last level is that of the labels

    # ------------------------------------------------------------------ fitting

    def features(self, read: Callable[[str], Any]) -> sparse.csr_matrix:
        """Return the features of texts [n, F]: n-grams and, beside them, vectors of length 1; ``read`` by name."""
        rows: sparse.csr_matrix = read(NGRAMS)
        return rows if self.vectors is None else join(rows, unit_rows(read(self.vectors)))

    def fit(
        self,
        rows: sparse.csr_matrix,
        targets: sparse.csr_matrix,
        exclude: sparse.csr_matrix | None = None,
        vectors: NDArray[np.float32] | None = None,
    ) -> Self:
        """Cluster the labels and train the rankers.

        Args:
            rows: [N, F] training rows.
            targets: [N, L] relevance in (0, 1].
            exclude: [N, L] pairs that are neither right nor wrong.
            vectors: [N, d] dense features beside the rows. Labels are then clustered by these alone, and queries have
                both, side by side.
        """
        self._check()
        x = as_rows(rows, "rows")
        if x.shape[0] == 0 or targets.shape[1] == 0:
            raise DataError(f"there is nothing to train on: {x.shape[0]} rows, {targets.shape[1]} labels")
        shape = x.shape[0], targets.shape[1]
        y = as_targets(targets, "targets", shape)
        if y.nnz == 0 or not (np.all(y.data > 0) and np.all(y.data <= 1)):
            raise DataError("targets must hold relevance in (0, 1], at least one")
        out = no_cells(shape) if exclude is None else as_targets(exclude, "exclude", shape)
        dense = np.empty((x.shape[0], 0), dtype=np.float32) if vectors is None else unit_rows(vectors)
        means = pifa(x if vectors is None else dense, y)
        trees = partial(grow_tree, x, dense, y, out, means, leaf=self.leaf, branches=self.branches, mined=self.mined)
        solver = Solver((float(self.C), float(self.C_negative)), self.tolerance, self.passes, float(self.prune))
        self.trees_ = [trees(solver=solver, seed=self.seed + number) for number in range(self.trees)]
        return self

    # ------------------------------------------------------------------ scores

    def search(self, queries: sparse.csr_matrix, k: int, exclude: sparse.csr_matrix | None = None) -> TopK:
        """Return the k best labels that the beam finds for each query [Q, F], best first, ties by id.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k. -1 fills a row with fewer than k.
        """
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        x, labels = self._queries(queries), len(self._ready()[0][-1].bias)
        out = None if exclude is None else as_targets(exclude, "exclude", (x.shape[0], labels))
        found = []
        for levels in self.trees_:
            beam = self._clusters(levels, x)
            found.append(levels[-1].searched.search(x, beam, k, out))
        if len(found) == 1:
            return TopK(found[0].ids, _as_scores(np.exp(found[0].scores)))
        ids = np.sort(np.concatenate([top.ids for top in found], axis=1), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1  # once each
        scores = self.scores(x, ids)
        best = np.lexsort((ids, -scores), axis=1)[:, :k]
        return TopK(np.take_along_axis(ids, best, axis=1), np.take_along_axis(scores, best, axis=1))

    def scores(self, queries: sparse.csr_matrix, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [Q, C] of some labels of each query; candidate -1 has -inf.

        They equal those of ``search`` bit for bit, and do not depend on the beam.
        """
        levels = self._ready()[0]
        x, labels = self._queries(queries), np.ascontiguousarray(candidates, dtype=np.int64)
        if labels.ndim != 2 or len(labels) != x.shape[0]:
            raise DataError(f"candidates must be [{x.shape[0]}, C], one row for each query, not {labels.shape}")
        if labels.min(initial=-1) < -1 or labels.max(initial=-1) >= len(levels[-1].bias):
            raise DataError(f"candidates must lie in -1 to {len(levels[-1].bias) - 1:,}")
        total = sum(np.exp(paths(levels, x, labels, len(levels))) for levels in self.trees_)
        mean = np.asarray(total / np.float32(len(self.trees_)), dtype=np.float32)
        return np.where(labels >= 0, _as_scores(mean), np.float32(-np.inf))

    def without(self, labels: NDArray[np.int64]) -> Self:
        """Return a head that never returns these labels and shares everything else with this one."""
        tree = copy(self)
        tree.trees_ = [[*levels[:-1], levels[-1].without(labels)] for levels in self._ready()]
        return tree

    def answers(self, queries: Queries, live: Live) -> Answers:
        """Score the features of the queries."""
        rows = self.features(queries.features)
        if live.unchanged:
            return SearchedAnswers(self, rows)
        trained = live.cached("trained", lambda: self.without(live.hidden) if len(live.hidden) else self)
        return live.merged(SearchedAnswers(trained, rows), lambda: GivenAnswers(self._changed(rows, live)))

    def _changed(self, rows: sparse.csr_matrix, live: Live) -> NDArray[np.float32]:
        """Return the scores [Q, c] of labels added or renamed after training."""
        x, total = self._queries(rows), np.zeros((rows.shape[0], len(live.ids)), dtype=np.float32)
        for number, levels in enumerate(self.trees_):
            part = f"weights_{number}"
            weights = live.cached(part, partial(FewRows, live.parts[part]))
            values = weights.products(x) + live.parts[f"bias_{number}"]
            parents = np.tile(live.parts[f"parent_{number}"], (x.shape[0], 1))
            above = paths(levels, x, parents, len(levels) - 1)
            total += np.exp(above - np.maximum(0, 1 - values) ** 3)
        return _as_scores(total / np.float32(len(self.trees_)))

    def _clusters(self, levels: list[Level], x: sparse.csr_matrix) -> TopK:
        """Return the best clusters of the queries."""
        beam = root(x.shape[0])
        for level in levels[:-1]:
            beam = level.searched.search(x, beam, self.beam)
        return beam

    # ------------------------------------------------------------------ labels after training

    def new_rows(self, new: NewTexts) -> dict[str, Part]:
        """Return ranker and cluster of each new text in each tree; a renamed label keeps its own."""
        parts: dict[str, Any] = {}
        rows = self.features(new.features) if new.added else None
        for number, levels in enumerate(self._ready()):
            last = levels[-1]
            if rows is None:
                weights = sparse.csr_matrix(last.weights[new.ids])
                bias, parent = last.bias[new.ids], last.parent[new.ids]
            else:
                norm = float(np.median(row_lengths(last.weights[new.rare])))
                lengths = np.maximum(row_lengths(rows), np.finfo(np.float32).tiny)
                weights = sparse.csr_matrix(sparse.diags(norm / lengths) @ rows, dtype=np.float32)
                bias = np.full(len(new.texts), np.median(last.bias[new.rare]), dtype=np.float32)
                parent = self._clusters(levels, self._queries(rows)).ids[:, 0]
            parts |= {f"weights_{number}": weights, f"bias_{number}": bias, f"parent_{number}": parent}
        return parts

    def grown(self, live: Live) -> Tree:
        """Return trees over all labels; a removed label that was added stays without weights in the first cluster."""
        if live.total == live.first and not len(live.ids):
            return self
        tree = copy(self)
        tree.trees_ = []
        for number, levels in enumerate(self._ready()):
            last, parts = levels[-1], live.parts
            more = live.total - len(last.bias)
            bias = np.concatenate([last.bias, np.full(more, BELOW, dtype=np.float32)])
            parent = np.concatenate([last.parent, np.zeros(more, dtype=np.int64)])
            if len(live.ids):
                bias[live.ids], parent[live.ids] = parts[f"bias_{number}"], parts[f"parent_{number}"]
            weights = spread_rows(last.weights, parts.get(f"weights_{number}"), live)
            tree.trees_.append([*levels[:-1], Level(weights, bias, parent, last.parents)])
        return tree

    # ------------------------------------------------------------------ files

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder for ``load`` completely or not at all, replacing an older one."""
        levels = [level for levels in self._ready() for level in levels]
        weights = sparse.csr_matrix(sparse.vstack([level.weights for level in levels], format="csr"))
        arrays = {
            "bias": np.concatenate([level.bias for level in levels]),
            "parent": np.concatenate([level.parent for level in levels]),
            "sizes": np.array([len(level.bias) for level in self.trees_[0]], dtype=np.int64),
        }
        write_part(folder, self.kind, self.config(), pack("weights", weights) | arrays)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the head written by ``save``."""
        wanted = ["bias", "parent", "sizes", *(f"weights.{part}" for part in PARTS)]
        settings, arrays = read_part(folder, cls.kind, inspect.signature(cls).parameters, wanted)
        tree = cls(**settings)
        tree._check()
        weights, bias, parent, sizes = unpack("weights", arrays, folder), *(arrays[name] for name in wanted[:3])
        total = weights.shape[0]
        if (
            sizes.ndim != 1 or sizes.dtype != np.int64 or len(sizes) == 0 or np.any(sizes < 1)
            or total != tree.trees * sizes.sum() or bias.shape != (total,) or bias.dtype != np.float32
            or parent.shape != (total,) or parent.dtype != np.int64
        ):  # fmt: skip
            raise DataError("the levels of the tree are damaged", path=folder, remedy="copy the folder again")
        start = 0
        for _ in range(tree.trees):
            levels: list[Level] = []
            for size, parents in zip(sizes.tolist(), [1, *sizes[:-1].tolist()], strict=True):
                rows = slice(start, start + size)
                if parent[rows].min() < 0 or parent[rows].max() >= parents:
                    raise DataError("the levels of the tree are damaged", path=folder, remedy="copy the folder again")
                levels.append(Level(sparse.csr_matrix(weights[rows]), bias[rows], parent[rows], parents))
                start += size
            tree.trees_.append(levels)
        return tree

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.config().items() if name != "kind")
        return f"Tree({arguments})"

    def _queries(self, queries: sparse.csr_matrix) -> sparse.csr_matrix:
        return as_rows(queries, "queries", self._ready()[0][0].weights.shape[1])

    def _ready(self) -> list[list[Level]]:
        if not self.trees_:
            raise SettingError("there are no weights yet", remedy="call fit first")
        return self.trees_

    def _check(self) -> None:
        least = {"prune": 0, "leaf": 1, "branches": 2, "trees": 1, "mined": 0, "beam": 1, "passes": 1, "seed": 0}
        check_bounds(self, ("C", "C_negative", "tolerance"), least)
