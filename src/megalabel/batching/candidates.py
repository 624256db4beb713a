"""Candidates: a list of labels for each row of a batch, with targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from megalabel.batching._cells import Cells, gather
from megalabel.batching.negatives import pairs_matrix
from megalabel.batching.pool import PoolBuilder
from megalabel.batching.positives import All, Picker
from megalabel.errors import SettingError
from megalabel.types import LABELS, Batch, Targets, View

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["CandidateBuilder"]


@dataclass(frozen=True, eq=False)
class CandidateBuilder:
    """Build a list of candidates for each row of a batch: its positives, labels of its shortlist, random labels.

    Astec (Dahiya et al., WSDM 2021, "DeepXML", section 3) trains the classifiers of millions of
    labels on such lists. A drawn label that is a positive of the row or filtered is dropped, so
    that no positive is ever a negative; a row has no duplicate labels. Rows without a positive
    are dropped.

    Args:
        targets: [N, L] relevance of the training rows, values in (0, 1].
        filter: [n, 2] pairs (row, label) that are neither right nor wrong, or None.
        positives: which positives of a row are candidates.
        lists: pairs of label ids [N, top] per training row from :func:`~megalabel.batching.negatives.mine`,
            padded with -1, and how many of them each row gets, drawn again in every step.
        uniform: random labels per row.
        loss_positives: which positives among the candidates are targets.
        unsampled: what happens to the others: "mask" removes them from the loss, "negative" uses them as
            negatives.

    >>> from scipy.sparse import csr_matrix
    >>> builder = CandidateBuilder(csr_matrix(np.eye(2, 9)), lists=[(np.array([[4, 7], [5, -1]]), 2)])
    >>> batch = builder.build(np.array([1, 0]), rng=np.random.default_rng(0))
    >>> batch.view.candidates.tolist(), batch.view.targets.dense().tolist()
    ([[1, -1, 5], [0, 4, 7]], [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    """

    targets: csr_matrix
    filter: NDArray[np.int64] | None = None
    positives: Picker = field(default_factory=All)
    lists: Sequence[tuple[NDArray[np.int32], int]] = ()
    uniform: int = 0
    loss_positives: Picker = field(default_factory=All)
    unsampled: Literal["mask", "negative"] = "mask"

    def __post_init__(self) -> None:
        if self.uniform < 0 or any(count < 0 for _, count in self.lists):
            raise SettingError("the number of labels drawn for a row must not be negative")

    def build(self, rows: NDArray[np.int64], *, rng: np.random.Generator) -> Batch:
        """Return the batch of distinct ``rows`` [B]; its pool holds all distinct candidates, ascending."""
        truth = self._truth
        rows = np.asarray(rows, dtype=np.int64)
        rows = rows[truth.indptr[rows + 1] > truth.indptr[rows]]
        cells = gather(truth, rows)
        chosen = np.zeros(len(cells.rows), dtype=bool)
        chosen[self.positives.choose(cells, rng)] = True
        picked = cells.keep(chosen)
        slots = np.arange(len(picked.rows)) - picked.starts[picked.rows]
        width = int(slots.max(initial=-1)) + 1
        drawn = self._drawn(rows, cells, rng)
        candidates = np.full((len(rows), width + drawn.shape[1]), -1, dtype=np.int64)
        candidates[picked.rows, slots] = picked.labels
        candidates[:, width:] = drawn
        sampled = np.zeros(len(slots), dtype=bool)
        sampled[self.loss_positives.choose(picked, rng)] = True
        targets = Targets(
            torch.from_numpy(picked.rows[sampled]),
            torch.from_numpy(slots[sampled]),
            torch.from_numpy(picked.values[sampled]),
            candidates.shape,
        )
        mask = candidates >= 0
        pool = np.unique(candidates[mask])
        if self.unsampled == "mask":
            mask[picked.rows[~sampled], slots[~sampled]] = False
        view = View(
            targets,
            pool=torch.from_numpy(pool),
            candidates=torch.from_numpy(candidates),
            mask=torch.from_numpy(mask),
        )
        return Batch(torch.from_numpy(rows), {LABELS: view})

    def statistics(self, batch: Batch) -> dict[str, float]:
        """Return candidates per query, positives among them, and the mean share of a query's positives among them."""
        positives = np.bincount(batch.view.targets.rows.numpy(), minlength=len(batch.queries))
        counts = np.diff(self._truth.indptr)[batch.queries.numpy()]
        sizes = [] if batch.view.mask is None else batch.view.mask.numpy().sum(axis=1)
        return {
            "pool_size": float(np.mean(sizes)) if len(sizes) else 0.0,
            "positives_per_query": float(positives.mean()) if len(positives) else 0.0,
            "positives_covered": float((positives / counts).mean()) if len(positives) else 0.0,
        }

    def _drawn(self, rows: NDArray[np.int64], cells: Cells, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return labels [B, s] in ascending order, -1 in place of labels that must not be negatives."""
        labels = self.targets.shape[1]
        parts = [rng.integers(labels, size=(len(rows), self.uniform))]
        for lists, count in self.lists:
            row_lists = lists[rows].astype(np.int64)
            parts.append(rng.permuted(row_lists, axis=1)[:, :count] if count < row_lists.shape[1] else row_lists)
        drawn = np.sort(np.concatenate(parts, axis=1), axis=1)
        drawn[:, 1:][drawn[:, 1:] == drawn[:, :-1]] = -1
        ignored = gather(self._filtered, rows)
        excluded = np.concatenate([part.rows * labels + part.labels for part in (cells, ignored)])
        places = np.arange(len(rows))[:, None] * labels + drawn
        drawn[np.isin(places, excluded) & (drawn >= 0)] = -1
        return drawn

    @cached_property
    def _truth(self) -> csr_matrix:
        return PoolBuilder(self.targets, filter=self.filter).truth

    @cached_property
    def _filtered(self) -> csr_matrix:
        return pairs_matrix(self.filter, self.targets.shape)
