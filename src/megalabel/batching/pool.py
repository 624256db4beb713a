"""The pool: from the rows of a batch to the labels, targets and mask of one training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from megalabel.batching._cells import Cells, gather, most_frequent, places
from megalabel.batching.negatives import Negatives, pairs_matrix
from megalabel.batching.positives import All, Picker, Some
from megalabel.errors import DataError, SettingError
from megalabel.types import LABELS, Batch, Targets, View

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["PoolBuilder"]


@dataclass(frozen=True, eq=False)
class PoolBuilder:
    """Build the label pool of a batch and read its targets from the full relevance matrix.

    The pool is the union of the positives picked for each row and of the negatives drawn
    for it, at most ``cap`` labels, sorted by id:

    1. the picked positives; if they exceed the cap, those picked by most rows;
    2. if more than ``min_gap`` places are left, labels from each source of negatives in
       turn, those drawn most often first;
    3. with ``fill="positives"``, other positives of the rows, those of most rows first.

    Ties are broken at random. Targets are Y[rows][:, pool], so a label that one row brought
    in is a positive of every row it is relevant for, with its value; filter pairs are masked.
    Rows left without a positive are dropped. Pools for pick-one, pick-some and pick-all
    labels, in-batch and mined negatives differ only in the arguments: UniDEC and DePSL
    (Kharbanda et al. 2024, arXiv 2405.03714), NGAME (Dahiya et al., WSDM 2023), DEXML with
    hard negatives and with all labels (Gupta et al. 2024, arXiv 2310.10636).

    Args:
        targets: [N, L] relevance of the training rows, values in (0, 1].
        filter: [n, 2] pairs (row, label) that are neither right nor wrong, or None; if a
            pair is also in ``targets``, the filter wins.
        positives: which positives of a row enter the pool.
        negatives: sources of further labels, in order of priority.
        cap: largest number of labels in the pool; None for no limit.
        fill: "positives" fills the pool up to the cap; None does not.
        min_gap: negatives are added only if more than this many places are left.
        loss_positives: which positives in the pool are targets. ``One()`` is what the published DEXML
            code does.
        unsampled: what happens to the other positives: "mask" removes them from the loss, "negative"
            uses them as negatives.
        all_labels: the pool is every label (``Batch.pool`` None); the arguments about
            the pool are ignored. A mask, if anything is masked, takes B x L bytes.
        keep_empty: keep rows without a positive in the pool.

    >>> from scipy.sparse import csr_matrix
    >>> builder = PoolBuilder(csr_matrix(np.array([[1.0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])), positives=All())
    >>> batch = builder.build(np.array([1, 0, 2]), rng=np.random.default_rng(0))
    >>> batch.queries.tolist(), batch.view.pool.tolist(), batch.view.targets.dense().tolist()  # row 2 has no label
    ([1, 0], [0, 2], [[0.0, 1.0], [1.0, 1.0]])
    """

    targets: csr_matrix
    filter: NDArray[np.int64] | None = None
    positives: Picker = field(default_factory=lambda: Some(3))
    negatives: Sequence[Negatives] = ()
    cap: int | None = None
    fill: Literal["positives"] | None = None
    min_gap: int = 0
    loss_positives: Picker = field(default_factory=All)
    unsampled: Literal["mask", "negative"] = "mask"
    all_labels: bool = False
    keep_empty: bool = False

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap < 1:
            raise SettingError(f"cap must be at least 1, not {self.cap}", remedy="leave it out for no limit")
        if self.fill not in (None, "positives"):
            raise SettingError(f"fill is {self.fill!r}", remedy="choose 'positives' or leave it out")
        if self.fill is not None and self.cap is None:
            raise SettingError("fill has no limit to fill up to", remedy="give a cap, or pick positives: all")

    def build(self, rows: NDArray[np.int64], *, rng: np.random.Generator) -> Batch:
        """Return the batch of ``rows`` [B], or of the rows, positives and partners [B, 3] that :class:`ByLabel` gives.

        A duplicate row is one query, with the positive and the partner of its first occurrence. Queries
        keep their order. If no row has a positive, the batch has no queries.
        """
        rows = np.asarray(rows, dtype=np.int64)
        queries, first = self._read(rows if rows.ndim == 1 else rows[:, 0])
        cells = gather(self.truth, queries)
        pool = None if self.all_labels else self._pool(queries, cells, rows[:, 1] if rows.ndim == 2 else None, rng)
        batch, keep = self._batch(queries, cells, pool, rng)
        if rows.ndim == 1:
            return batch
        anchors, partners = (torch.from_numpy(rows[first, column][keep]) for column in (1, 2))
        return replace(batch, anchors=anchors, partners=partners)

    def statistics(self, batch: Batch) -> dict[str, float]:
        """Return pool size, positives in the pool per query, and the mean share of a query's positives in the pool."""
        cells = gather(self.truth, batch.queries.numpy())
        pool = batch.view.pool
        size = self.targets.shape[1] if pool is None else len(pool)
        inside = np.ones(len(cells.labels), dtype=bool) if pool is None else _inside(pool.numpy(), cells)
        positives = np.bincount(cells.rows[inside], minlength=len(batch.queries))
        counts = np.diff(cells.starts)
        full = counts > 0
        return {
            "pool_size": float(size),
            "positives_per_query": float(positives.mean()) if len(positives) else 0.0,
            "positives_covered": float((positives[full] / counts[full]).mean()) if full.any() else 0.0,
        }

    @cached_property
    def _filtered(self) -> csr_matrix:
        return pairs_matrix(self.filter, self.targets.shape)

    @cached_property
    def truth(self) -> csr_matrix:
        """The targets without duplicates, zeros and filter pairs."""
        truth = self.targets
        if not truth.has_canonical_format or not truth.data.all():
            truth = truth.copy()
            truth.sum_duplicates()
            truth.data = np.minimum(truth.data, 1)
            truth.eliminate_zeros()
        both = truth.multiply(self._filtered).tocsr()
        if both.nnz:
            truth = truth - both
            truth.eliminate_zeros()
        return truth.astype(np.float32, copy=False)

    def _read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each row once, in order of first occurrence, and the positions of these occurrences."""
        count = self.targets.shape[0]
        if len(rows) and (rows.min() < 0 or rows.max() >= count):
            raise DataError(f"a batch names row {rows.max()} or {rows.min()}, the data has rows 0 to {count - 1}")
        first = np.sort(np.unique(rows, return_index=True)[1])
        return rows[first], first

    def _pool(
        self, rows: NDArray[np.int64], cells: Cells, picked: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        if picked is None:
            picked = cells.labels[self.positives.choose(cells, rng)]
        pool = np.sort(most_frequent(picked, self.cap, rng))
        for source in self.negatives:
            if self.cap is None or self.cap - len(pool) > self.min_gap:
                pool = self._grow(pool, source.draw(rows, self.targets.shape[1], rng), rng)
        return pool if self.fill is None else self._grow(pool, cells.labels, rng)

    def _grow(self, pool: NDArray[np.int64], labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        room = None if self.cap is None else self.cap - len(pool)
        return np.sort(np.concatenate([pool, most_frequent(labels, room, rng, excluded=pool)]))

    def _batch(
        self, rows: NDArray[np.int64], cells: Cells, pool: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> tuple[Batch, NDArray[np.bool_]]:
        """Read the targets of the pool, drop rows without one, and mask filter pairs; also return the kept rows."""
        width = self.targets.shape[1] if pool is None else len(pool)
        cells = _columns(cells, pool)
        chosen = np.zeros(len(cells.rows), dtype=bool)
        chosen[self.loss_positives.choose(cells, rng)] = True
        keep = np.ones(len(rows), dtype=bool) if self.keep_empty else np.diff(cells.starts) > 0
        place = np.cumsum(keep) - 1  # position of a kept row among the kept ones
        ignored = _columns(gather(self._filtered, rows), pool)
        ignored = ignored.keep(keep[ignored.rows])
        masked = ~chosen if self.unsampled == "mask" else np.zeros(len(chosen), dtype=bool)
        out_rows = place[np.concatenate([ignored.rows, cells.rows[masked]])]
        out_cols = np.concatenate([ignored.labels, cells.labels[masked]])
        count = int(keep.sum())
        targets = Targets(
            torch.from_numpy(place[cells.rows[chosen]]),
            torch.from_numpy(cells.labels[chosen]),
            torch.from_numpy(cells.values[chosen]),
            (count, width),
        )
        view = View(
            targets,
            pool=None if pool is None else torch.from_numpy(pool),
            mask=_mask(out_rows, out_cols, (count, width)) if len(out_rows) else None,
        )
        return Batch(torch.from_numpy(rows[keep]), {LABELS: view}), keep


def _inside(pool: NDArray[np.int64], cells: Cells) -> NDArray[np.bool_]:
    return places(pool, cells.labels)[1]


def _columns(cells: Cells, pool: NDArray[np.int64] | None) -> Cells:
    """Return the cells whose label is in the pool, with its position in the pool."""
    if pool is None:
        return cells
    place, inside = places(pool, cells.labels)
    return cells._replace(labels=place).keep(inside)


def _mask(rows: NDArray[np.int64], cols: NDArray[np.int64], shape: tuple[int, int]) -> torch.Tensor:
    mask = np.ones(shape, dtype=bool)
    mask[rows, cols] = False
    return torch.from_numpy(mask)
