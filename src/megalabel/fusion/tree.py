"""Fusion by a decision tree over the scores of the heads and the frequency of the label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from megalabel.errors import DataError, SettingError
from megalabel.fusion.calibrate import Calibration
from megalabel.fusion.candidates import (
    check_candidates,
    finite_numbers,
    label_count,
    log_values,
    present_scores,
)
from megalabel.fusion.fused import FusedScores, cells_to_fit, read_names

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["DecisionTree", "TreeFusion"]

DEPTH = 7
MIN_LEAF = 20  # cells of a leaf at least


@dataclass(frozen=True)
class DecisionTree:
    """A binary tree of questions "is feature f at most t?", with the mean target of the cells in each leaf.

    Node 0 is the root; children have higher numbers than their parents. Splits lower the Gini impurity most, as in
    CART (Breiman et al. 1984); of equal splits the first feature and the lowest threshold win.

    >>> tree = DecisionTree.fit(np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0.0, 0.0, 1.0, 1.0]), min_leaf=1)
    >>> tree.thresholds[0], tree.predict(np.array([[0.0], [9.0]])).tolist()
    (2.5, [0.0, 1.0])
    """

    features: tuple[int, ...]  # [n] -1 in a leaf
    thresholds: tuple[float, ...]  # [n] 0 in a leaf
    left: tuple[int, ...]  # [n] the node of cells at or below the threshold; -1 in a leaf
    right: tuple[int, ...]  # [n] the node of the others; -1 in a leaf
    values: tuple[float, ...]  # [n] mean target of the cells

    @classmethod
    def fit(
        cls,
        inputs: NDArray[np.floating[Any]],
        targets: NDArray[np.floating[Any]],
        *,
        depth: int = DEPTH,
        min_leaf: int = MIN_LEAF,
    ) -> DecisionTree:
        """Grow a tree on features [n, F] and targets [n] in [0, 1]."""
        if len(inputs) == 0:
            raise DataError("no cell to grow a tree on")
        inputs = inputs.astype(np.float32)
        nodes: list[list[Any]] = []
        waiting = [(np.arange(len(inputs)), 0, -1, 0)]  # cells, depth, parent, field of the parent
        while waiting:
            cells, level, parent, side = waiting.pop()
            if parent >= 0:
                nodes[parent][side] = len(nodes)
            truth = targets[cells]
            nodes.append([-1, 0.0, -1, -1, float(truth.mean())])
            split = _best_split(inputs[cells], truth, min_leaf) if level < depth else None
            if split is None:
                continue
            number = len(nodes) - 1
            nodes[number][:2] = split
            below = inputs[cells, split[0]] <= split[1]
            waiting += [(cells[~below], level + 1, number, 3), (cells[below], level + 1, number, 2)]
        return cls(*(tuple(column) for column in zip(*nodes, strict=True)))

    def predict(self, inputs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the mean target [n] of the leaf that each row of features [n, F] falls into."""
        inputs = inputs.astype(np.float32)
        features, thresholds, left, right, values = (np.array(column) for column in vars(self).values())
        node = np.zeros(len(inputs), dtype=np.int64)
        while len(open_rows := np.flatnonzero(left[node] >= 0)):  # children have higher numbers, so this ends
            here = node[open_rows]
            below = inputs[open_rows, features[here]] <= thresholds[here]
            node[open_rows] = np.where(below, left[here], right[here])
        means: NDArray[np.float64] = values[node]
        return means

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], inputs: int) -> DecisionTree:
        """Read a tree over ``inputs`` features from plain lists; raise a DataError for anything else."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, Mapping) or set(values) != set(names) or not values["values"]:
            raise DataError(f"a decision tree must have {', '.join(names)}")
        columns = {name: finite_numbers(values[name], name, len(values["values"])) for name in names}
        whole = {name: [int(number) for number in columns[name]] for name in ("features", "left", "right")}
        for node, (feature, *children) in enumerate(zip(*whole.values(), strict=True)):
            leaf = feature == -1 and children == [-1, -1]
            if not leaf and not (
                0 <= feature < inputs and all(node < child < len(columns["left"]) for child in children)
            ):
                raise DataError(f"node {node} of the decision tree is damaged", remedy="copy the model again")
        return cls(**columns | {name: tuple(numbers) for name, numbers in whole.items()})  # type: ignore[arg-type]


@dataclass(frozen=True)
class TreeFusion(FusedScores):
    """The score fusion of NGAME (Dahiya et al., WSDM 2023).

    With s_h the score of head h and p the prediction of a decision tree of depth 7 on all s_h and on the frequency
    of the label, the last head being the classifier and the others dual encoders,

        score = s_last + beta (p + sum of the other s_h)

    The paper gives the tree the inverse propensity of the label. That falls with the number n_l of its training
    points, and a tree asks only which of two values is larger, so log(1 + n_l) takes its place. The published code
    fits the tree on training rows, which the model knows by heart; :meth:`fit` is for rows that no head was trained on.

    A missing score (NaN or -inf) is replaced by ``floors_h``, the lowest score of that head in the fit.

    >>> from scipy.sparse import csr_matrix
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((200, 5)) < 0.3
    >>> scores = {"dual": truth + rng.normal(size=(200, 5)), "classifier": truth + rng.normal(size=(200, 5))}
    >>> candidates, counts = np.tile(np.arange(5), (200, 1)), np.ones(5, dtype=np.int64)
    >>> fusion = TreeFusion.fit(scores, candidates, csr_matrix(truth, dtype=np.float32), counts, beta=0.5)
    >>> fusion.shares()
    {'dual': 0.3333333333333333, 'classifier': 0.6666666666666666}
    """

    names: tuple[str, ...]  # [H] the heads, the classifier last
    floors: tuple[float, ...]  # [H] replaces a missing score
    beta: float
    tree: DecisionTree  # on the H scores and log(1 + n_l)
    calibration: Calibration | None

    rest: ClassVar[str] = "tree"

    @classmethod
    def fit(
        cls,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        targets: csr_matrix,
        counts: NDArray[np.integer[Any]],
        *,
        beta: float = 1.0,
        exclude: csr_matrix | None = None,
    ) -> TreeFusion:
        """Grow the tree on all candidates of validation rows; arguments as in :meth:`megalabel.fusion.Fusion.fit`."""
        if len(scores) < 2:
            raise DataError("a tree fuses at least two heads")
        if not (np.isfinite(beta) and beta > 0):
            raise SettingError(f"beta must be above 0, not {beta}")
        candidates, live, truth = cells_to_fit(candidates, targets, counts, exclude)
        floors = []
        for name, head_scores in scores.items():
            values, present = present_scores(head_scores, live, name)
            floors.append(float(values[present].min()) if present.any() else 0.0)
        empty = DecisionTree((-1,), (0.0,), (-1,), (-1,), (0.0,))
        fusion = cls(tuple(scores), tuple(floors), float(beta), empty, Calibration(1.0, 0.0))
        inputs = fusion._inputs(fusion._values(scores, live), candidates, counts)
        fusion = replace(fusion, tree=DecisionTree.fit(inputs[live], truth[live]))
        return replace(fusion, calibration=Calibration.fit(fusion._logits(scores, candidates, counts, live), truth))

    def contributions(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
        """Return the term of each head in the score [Q, C], and the remaining term: beta p."""
        ids = check_candidates(candidates, label_count(counts))
        values = self._values(scores, ids >= 0)
        inputs = self._inputs(values, ids, counts)
        tree = self.tree.predict(inputs.reshape(-1, inputs.shape[-1])).reshape(ids.shape)
        return {name: weight * values[name] for name, weight in self._weights().items()}, self.beta * tree

    def shares(self) -> dict[str, float]:
        """Return the weight of each head in the score, relative to their sum; the tree reads them all."""
        weights = self._weights()
        return {name: weight / sum(weights.values()) for name, weight in weights.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        tree = {name: list(column) for name, column in asdict(self.tree).items()}
        plain = {"names": list(self.names), "floors": list(self.floors), "beta": self.beta}
        return {**plain, "tree": tree, "calibration": None if self.calibration is None else self.calibration.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TreeFusion:
        """Read the output of :meth:`to_dict`; raise a DataError for anything else."""
        names = read_names(values, cls, least=2)
        floors, (beta,) = (
            finite_numbers(values["floors"], "floors", len(names)),
            finite_numbers([values["beta"]], "beta"),
        )
        if beta <= 0:
            raise DataError(f"beta must be above 0, not {beta}")
        tree = DecisionTree.from_dict(values["tree"], inputs=len(names) + 1)
        return cls(names, floors, beta, tree, Calibration.read(values["calibration"]))

    def _weights(self) -> dict[str, float]:
        return {name: self.beta for name in self.names[:-1]} | {self.names[-1]: 1.0}

    def _values(
        self, scores: Mapping[str, NDArray[np.floating[Any]]], live: NDArray[np.bool_]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the scores [Q, C] of each head, with its floor where there is none."""
        values = {}
        for name, floor in zip(self.names, self.floors, strict=True):
            given, present = present_scores(scores[name], live, name)
            values[name] = np.where(present, given, floor)
        return values

    def _inputs(
        self,
        values: Mapping[str, NDArray[np.float64]],
        candidates: NDArray[np.int64],
        counts: NDArray[np.integer[Any]],
    ) -> NDArray[np.float64]:
        """Return the features of the tree [Q, C, H + 1]."""
        return np.stack([*values.values(), log_values(counts, candidates, "label counts", plus=1.0)], axis=-1)

    def _logits(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.int64],
        counts: NDArray[np.integer[Any]],
        live: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return the score [Q, C]; -inf where there is no candidate."""
        parts, tree = self.contributions(scores, candidates, counts)
        return np.where(live, sum(parts.values(), start=tree), -np.inf)


def _best_split(
    inputs: NDArray[np.float32], targets: NDArray[np.floating[Any]], min_leaf: int
) -> tuple[int, float] | None:
    """Return the feature and threshold that lower the Gini impurity of cells [n, F] most; None if nothing does."""
    count, total = len(targets), float(targets.sum(dtype=np.float64))
    best, split = _gini(count, total) * (1 - 1e-9), None  # a gain within rounding error is none
    below = np.arange(1, count)
    for feature in range(inputs.shape[1]):
        order = np.argsort(inputs[:, feature], kind="stable")
        values = inputs[order, feature].astype(np.float64)
        sums = np.cumsum(targets[order], dtype=np.float64)[:-1]
        impurity = _gini(below, sums) + _gini(count - below, total - sums)
        allowed = (values[1:] > values[:-1]) & (np.minimum(below, count - below) >= min_leaf)
        impurity = np.where(allowed, impurity, np.inf)
        place = int(impurity.argmin()) if len(impurity) else 0
        if len(impurity) and impurity[place] < best:
            best, split = impurity[place], (feature, float(values[place] / 2 + values[place + 1] / 2))
    return split


def _gini(count: Any, total: Any) -> Any:
    """Return n times the Gini impurity of cells whose targets sum up to ``total``."""
    return 2 * total * (1 - total / count)
