"""Gandalf: label texts as training queries, with targets from the label graph."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from scipy import sparse

from megalabel.augment._rows import Augmentation, TokenTable, check_texts, choose, how_many, name_rows
from megalabel.augment.calibration import Calibration
from megalabel.augment.known import KnownTexts, pattern
from megalabel.data.dataset import Split
from megalabel.data.matrices import count_columns
from megalabel.data.texts import take_texts
from megalabel.errors import DataError, SettingError
from megalabel.graphs.label_graph import GraphKind, label_graph
from megalabel.metrics.bins import volume_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset

__all__ = ["GandalfSettings", "KnownLabels", "TargetKind", "gandalf"]

BINS = 5  # of equal volume, for sample="tail"
UNLIKE = 0.2  # share of right targets of label texts: Gandalf lost at 0.005 and 0.03, gained at 0.39 (docs/gandalf.md)

KnownLabels = Literal["merge", "ignore"]
TargetKind = Literal["conditional", "calibrated", "self", "glas"]


class GandalfSettings(Augmentation):
    """Settings of :func:`gandalf`, which explains them."""

    renamed: ClassVar[dict[str, str]] = {"most": "max_targets", "low": "below_delta", "keep": "rows_kept"}

    kind: Literal["gandalf"] = "gandalf"
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the labels whose text is added
    sample: Literal["uniform", "tail"] = "uniform"
    targets: TargetKind = "conditional"
    known: KnownLabels = "merge"
    graph: GraphKind = "counts"
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.1
    max_targets: PositiveInt | None = 5  # None: no limit
    below_delta: Literal["negative", "mask"] = "negative"
    rows_kept: Literal["both", "labels"] = "both"
    rows: PositiveInt | Literal["train"] | None = None

    @model_validator(mode="after")
    def _check_effect(self) -> GandalfSettings:
        alone = "targets is self" if self.targets == "self" else "max_targets is 1" if self.max_targets == 1 else ""
        masked = self.below_delta == "mask"
        self.require(self.share < 1, "sample", "share is 1, so every label text is added")
        self.require(self.targets != "self", "max_targets", alone)
        self.require(not alone, "delta", alone)
        self.require(not alone or masked, "graph", f"{alone} and below_delta is negative")
        self.require(self.targets != "self", "known", alone)
        if self.targets == "calibrated" and alone:
            raise ValueError(f"targets: calibrated has no effect: {alone}")
        every_pair = not alone and self.targets != "calibrated" and self.delta == 0 and self.max_targets is None
        self.require(not every_pair, "below_delta", "with delta 0 and no max_targets every pair is a target")
        return self

    def apply(
        self, data: Dataset, *, seed: int, token_table: TokenTable, say: Callable[[str], None] | None = None
    ) -> Dataset:
        """Return the data set with label texts among its train rows."""
        del token_table
        return gandalf(data, **self.model_dump(exclude={"kind"}), seed=seed, say=say)

    def count_rows(self, points: int, labels: int) -> int:
        """Return the number of train rows after augmenting a set of ``points`` train rows and ``labels`` labels."""
        if self.rows is not None:
            return points if self.rows == "train" else self.rows
        return round(self.share * labels) + (points if self.rows_kept == "both" else 0)


def gandalf(
    data: Dataset,
    *,
    delta: float = 0.1,
    max_targets: int | None = 5,
    graph: GraphKind | sparse.csr_matrix = "counts",
    targets: TargetKind = "conditional",
    known: KnownLabels = "merge",
    below_delta: Literal["negative", "mask"] = "negative",
    share: float = 1.0,
    sample: Literal["uniform", "tail"] = "uniform",
    rows_kept: Literal["both", "labels"] = "both",
    rows: int | Literal["train"] | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> Dataset:
    r"""Add every label text to train as a query; its targets are the labels that occur with it.

    .. math::
        \hat G = Y^T Y, \qquad c_{ij} = \hat G_{ij} / \hat G_{jj} \approx P(Y_i = 1 | Y_j = 1), \qquad
        y^G_{ij} = c_{ij} \text{ if } c_{ij} > \delta \text{ else } 0

    The row of label text z_j has the targets c_{.j}, in (0, 1], with label j at 1; c is
    divided by the count of the query label j and is not symmetric. A label without train
    points has itself only. Kharbanda et al. 2024, "Learning label-label correlations in extreme
    multi-label classification via label features" (Gandalf, arXiv 2405.04545). The
    model, prediction and the memory of a step do not change; an epoch has L more rows. The paper's exact form is
    ``known="ignore", max_targets=None``.

    The graph is built from the train rows only, without their filter pairs; val, test and
    propensities do not change. Hold validation rows out first, as :func:`megalabel.train`
    does: the graph must not contain validation pairs. Filter pairs apply to the original rows
    only, and to known texts that are merged (below), but never to a text's own label: a label text as a query has its
    own label as a positive.

    Args:
        data: the set; every label needs a text.
        delta: targets must be above it, in [0, 1).
        max_targets: largest number of targets of a label text, including its own label; known labels
            that are merged are not limited. The
            largest targets are kept, ties are broken at random; None for no limit, as in the
            paper. Without a limit, a label whose only point has very many labels gets all of
            them as targets, at 1, and a step of such rows costs more than one of train rows.
        graph: ``counts`` is c above; ``shared_counts`` counts a train row 1 / (its labels - 1) for each pair;
            ``shrunk_counts`` is G_ij / (G_jj + 1); ``walk`` takes the visits of a random walk over train (see
            :func:`megalabel.graphs.label_graph`); or a matrix of targets [L, L], row j for
            label text j; its diagonal counts as 1.
        targets: ``conditional``, y^G above; ``self``, every label text has its own label
            only (Z^1, no graph); ``calibrated``, p(c_ij, n_j) if c and p are above delta: how often pairs like this
            one are true of label texts that are train texts, with n_j the points of label j, fitted by isotonic
            regression (:class:`~megalabel.augment.calibration.Calibration`). Where train confirms nothing, or
            no label text is a train text, a label text has its own label only. Train rows of a label's own text
            do not count as points of that label here, since they hold the answers. ``glas``, sigma(S) for the
            pairs with S > delta, where S = (C + C^T) / 2 is symmetric with diagonal 1, so its own label has the
            target sigma(1) = 0.73: the optimum of BCE is then that of the regulariser of Guo et
            al. 2019. In the formula, all other pairs have
            sigma(0) = 1/2, which would make every label half relevant to every other;
            here they are negatives.
        known: labels of label texts that are, letter for letter, also train texts: ``merge`` gives such a text the
            labels of its train rows and its own label, in place of targets from the graph, which would call known
            labels negatives. ``ignore`` gives it targets from the graph like any other, as in the paper. If no text
            is shared, there is nothing to merge.
        below_delta: how to treat pairs of the graph that are not targets (c <= delta, or
            beyond ``max_targets``): as ``negative``, or ``mask`` them (filter pairs of the new
            rows).
        share: share of the labels whose text is added.
        sample: how these are drawn: ``uniform``, or ``tail``: from the rarest of five bins of
            labels with equal numbers of train pairs first.
        rows_kept: ``both`` adds label texts to the train rows, ``labels`` replaces the train rows.
        rows: keep that many of all rows, drawn uniformly without replacement; ``train`` keeps
            the number of rows, and so the cost of an epoch.
        seed: random seed.
        say: called with a line on what is known of the label texts.

    >>> from megalabel import Dataset
    >>> data = Dataset.from_lists(
    ...     [("ab", [0, 1]), ("ac", [0, 2]), ("ab", [0, 1]), ("cd", [2, 3]), ("a", [0])], [("a", [0])], list("ABCD"))
    >>> more = gandalf(data)
    >>> more.train.texts[5:], more.train.uids[5:7]
    (['A', 'B', 'C', 'D'], ['gandalf:lbl-0', 'gandalf:lbl-1'])
    >>> more.train.targets[5:].toarray()
    array([[1.  , 0.5 , 0.25, 0.  ],
           [1.  , 1.  , 0.  , 0.  ],
           [0.5 , 0.  , 1.  , 0.5 ],
           [0.  , 0.  , 1.  , 1.  ]], dtype=float32)

    The text B is also a train text, with the labels C and D:

    >>> data = Dataset.from_lists([("ab", [0, 1]), ("B", [2, 3])], [("a", [0])], list("ABCD"))
    >>> for known in ("merge", "ignore"):
    ...     gandalf(data, known=known).train.targets[3].toarray().tolist()
    [[0.0, 1.0, 1.0, 1.0]]
    [[1.0, 1.0, 0.0, 0.0]]
    """
    choose("targets", targets, ("conditional", "calibrated", "self", "glas"))
    choose("known", known, ("merge", "ignore"))
    _check(data, delta, max_targets, below_delta, sample, rows_kept)
    rng = np.random.default_rng(seed)
    train = data.train
    relevant = train.without(train.filter).targets
    texts = None if targets == "self" else KnownTexts.find(data)
    label_targets, masked = _targets(
        relevant,
        texts,
        delta=delta,
        max_targets=max_targets,
        graph=graph,
        kind=targets,
        mask=below_delta == "mask",
        seed=seed,
        say=say,
    )
    if texts is not None and known == "merge":
        label_targets = texts.merge(label_targets)
        masked = texts.filter if masked is None else texts.unknown(masked) + texts.filter
    if say is not None and texts is not None and len(texts.ids):
        now = "have the labels of their train rows" if known == "merge" else "do not get the labels of their train rows"
        say(f"{len(texts.ids):,} label texts are train texts too; with known={known} they {now}")
    picked = _pick(count_columns(relevant), share, sample, rng)
    new = _label_rows(data, label_targets, masked, picked)
    all_rows = train + new if rows_kept == "both" else new
    return data.replace(train=_draw(all_rows, len(train) if rows == "train" else rows, rng))


def _check(
    data: Dataset,
    delta: float,
    max_targets: int | None,
    below_delta: str,
    sample: str,
    rows_kept: str,
) -> None:
    if not 0 <= delta < 1:
        raise SettingError(f"delta must be at least 0 and below 1, not {delta}", remedy="try 0.1")
    if max_targets is not None and max_targets < 1:
        raise SettingError(f"max_targets must be at least 1, not {max_targets}", remedy="None means no limit")
    choose("below_delta", below_delta, ("negative", "mask"))
    choose("sample", sample, ("uniform", "tail"))
    choose("rows_kept", rows_kept, ("both", "labels"))
    check_texts(data)


def _targets(
    relevant: sparse.csr_matrix,
    texts: KnownTexts | None,
    *,
    delta: float,
    max_targets: int | None,
    graph: str | sparse.csr_matrix,
    kind: str,
    mask: bool,
    seed: int,
    say: Callable[[str], None] | None,
) -> tuple[sparse.csr_matrix, sparse.csr_matrix | None]:
    """Return the targets [L, L] of the label texts and, if ``mask``, the other pairs of the graph."""
    size = relevant.shape[1]
    itself = sparse.identity(size, dtype=np.float32, format="csr")
    if kind == "self" and not mask:
        return itself, None
    if kind == "calibrated":
        assert texts is not None
        relevant = relevant - relevant.multiply(texts.own).tocsr()
        relevant.eliminate_zeros()
    floor = delta if kind in ("conditional", "calibrated") and not mask else 0.0
    conditional = _conditional(relevant, graph, floor, seed)
    source = (conditional + conditional.T).tocsr() / 2 if kind == "glas" else conditional
    targets = itself if kind == "self" else _above(source, delta)
    if targets.nnz == size and kind != "self":
        warnings.warn(
            f"no two labels go together above delta {delta}: every label text has itself as its only target",
            stacklevel=4,
        )
    if kind == "calibrated":
        assert texts is not None
        points = count_columns(relevant)
        targets = _above(_calibrated(targets, texts, points, say), delta)
    if max_targets is not None:
        targets = _largest(targets, max_targets, np.random.default_rng([seed, max_targets]))
    if say is not None and texts is not None and kind != "calibrated":
        _say_agreement(targets, texts, say)
    masked = pattern(source) - pattern(targets) if mask else None
    if kind == "glas":
        targets.data = 1 / (1 + np.exp(-targets.data))
    return targets, masked


def _calibrated(
    targets: sparse.csr_matrix, texts: KnownTexts, points: NDArray[np.int64], say: Callable[[str], None] | None
) -> sparse.csr_matrix:
    """Return how often each target [L, L] is true of known texts; only the diagonal if there is none to learn from."""
    queries, values, true = texts.pairs(targets)
    if say is not None:
        share = f", {true.mean():.1%} of them true" if len(true) else ""
        say(f"calibrated on {len(true):,} targets of {len(texts.ids):,} label texts that are train texts too{share}")
    if not true.any():
        return sparse.identity(targets.shape[0], dtype=np.float32, format="csr")
    curve = Calibration.fit(values, points[queries], true)
    cells = targets.tocoo()
    chance = np.where(cells.row == cells.col, 1.0, curve(cells.data, points[cells.row])).astype(np.float32)
    return sparse.csr_matrix((chance, (cells.row, cells.col)), shape=targets.shape)


def _say_agreement(targets: sparse.csr_matrix, texts: KnownTexts, say: Callable[[str], None]) -> None:
    """Say how many targets of known texts train confirms."""
    _, _, true = texts.pairs(targets)
    if len(true):
        hint = "; if it does not help, try augment.targets=calibrated or self" if true.mean() < UNLIKE else ""
        say(f"{true.mean():.1%} of the targets from the graph are right where train knows{hint}")


def _conditional(
    relevant: sparse.csr_matrix, graph: str | sparse.csr_matrix, floor: float, seed: int
) -> sparse.csr_matrix:
    """Return the target of label i for label text j at (j, i): [L, L], values in (0, 1], diagonal 1."""
    if isinstance(graph, str):
        return label_graph(graph, relevant, floor, seed=seed)
    size = relevant.shape[1]
    if graph.shape != (size, size):
        raise DataError(
            f"the graph is {graph.shape[0]:,} x {graph.shape[1]:,} but the set has {size:,} labels",
            remedy="build it from the train part of this set",
        )
    if graph.nnz == 0:
        raise DataError("the graph has no edges", remedy="build it from the train part, or choose targets='self'")
    if not (np.all(graph.data > 0) and np.all(graph.data <= 1)):
        raise DataError("values of the graph must lie in (0, 1]", remedy="divide each row by its diagonal")
    matrix = sparse.csr_matrix(graph, dtype=np.float32)
    return matrix - sparse.diags(matrix.diagonal() - 1, format="csr", dtype=np.float32)


def _above(matrix: sparse.csr_matrix, delta: float) -> sparse.csr_matrix:
    keep = matrix.data > matrix.dtype.type(delta)
    cells = matrix.tocoo()
    return sparse.csr_matrix((cells.data[keep], (cells.row[keep], cells.col[keep])), shape=matrix.shape)


def _largest(matrix: sparse.csr_matrix, count: int, rng: np.random.Generator) -> sparse.csr_matrix:
    """Return the ``count`` largest cells of each row, the diagonal first; ties are broken at random."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((rng.random(matrix.nnz), -matrix.data, matrix.indices != rows, rows))
    first = order[np.arange(matrix.nnz) - matrix.indptr[rows] < count]  # order keeps rows ascending
    return sparse.csr_matrix((matrix.data[first], (rows[first], matrix.indices[first])), shape=matrix.shape)


def _pick(counts: NDArray[np.int64], share: float, sample: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the labels whose text is added, in order."""
    number = how_many(share, len(counts))
    if number == len(counts):
        return np.arange(number)
    draws = rng.random(len(counts))
    order = np.argsort(draws) if sample == "uniform" else np.lexsort((draws, -volume_groups(counts, BINS)))
    return np.sort(order[:number])


def _label_rows(
    data: Dataset, targets: sparse.csr_matrix, masked: sparse.csr_matrix | None, picked: NDArray[np.int64]
) -> Split:
    names = (data.labels.uids[i] for i in picked.tolist())
    uids = name_rows("gandalf", names, data.train.uids)
    texts = take_texts(data.labels.texts, picked)
    new = Split(texts, targets[picked].astype(np.float32), uids)
    if masked is None or masked.nnz == 0:
        return new
    cells = pattern(masked)[picked].tocoo()
    return new.filtering(np.stack([cells.row, cells.col], axis=1).astype(np.int64))


def _draw(split: Split, number: int | None, rng: np.random.Generator) -> Split:
    """Return ``number`` rows of the split, in order."""
    if number is None:
        return split
    if not 1 <= number <= len(split):
        raise SettingError(f"rows is {number}, there are {len(split):,} to draw from")
    return split.rows(np.sort(rng.choice(len(split), number, replace=False)))
