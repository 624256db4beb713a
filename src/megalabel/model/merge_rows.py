"""Put new labelled rows and corrections together with the training rows of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Labels, Split
from megalabel.errors import DataError
from megalabel.model.match import match
from megalabel.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.model.labels import LabelState
    from megalabel.model.train_rows import TrainRows

__all__ = ["MergedRows", "merge_rows"]


@dataclass(frozen=True)
class MergedRows:
    """Old and new rows over the M labels of a model and U new ones.

    A new row whose text is among the old ones is a correction: it replaces the labels of that row.
    """

    split: Split  # [N, M + U], the old rows first; every row has a label
    new: Labels  # [U] labels of the rows that the model does not know
    fresh: NDArray[np.int64]  # rows whose text is new
    corrected: NDArray[np.int64]  # rows whose labels are other ones than before
    held: NDArray[np.int64]  # old rows that training held out for validation
    lost: NDArray[np.int64]  # labels that corrections took from a row
    unchanged: int  # new rows that are known with the same labels
    repeated: int  # new rows whose text comes again further down: the last one counts
    bare: int  # new rows without a label, of no known text: left out
    dropped: int  # known rows that a correction leaves without a label: they are no longer trained on

    @property
    def changed(self) -> NDArray[np.int64]:
        """Rows to learn from: new and corrected ones."""
        return np.union1d(self.fresh, self.corrected)

    @property
    def notes(self) -> list[str]:
        """What the rows are, a line each."""
        fresh = counted(len(self.fresh), "new text")
        lines = [f"{fresh}, {len(self.corrected):,} corrected, {self.unchanged:,} known already"]
        if len(self.new):
            shown = ", ".join(repr(text[:60]) for text in self.new.texts[:5])
            more = f" and {len(self.new) - 5:,} more" if len(self.new) > 5 else ""
            lines.append(f"{counted(len(self.new), 'new label')}: {shown}{more}")
        if self.repeated:
            lines.append(f"{counted(self.repeated, 'row')} with a text that comes again; the last one counts")
        if self.bare:
            lines.append(f"{counted(self.bare, 'row')} without a label left out")
        if self.dropped:
            lines.append(f"{counted(self.dropped, 'known row')} without labels now, no longer trained on")
        return lines


def merge_rows(state: LabelState, train: TrainRows, data: Dataset) -> MergedRows:
    """Merge the rows of a data set into the training rows of a model.

    Labels are matched as in ``evaluate``: by uid, or by text where the data has only names. All rows of a table of
    test rows count, of other data those of train and val; the test rows of a data set are never learnt from.

    Args:
        state: the labels of the model.
        train: its training rows.
        data: the new rows.

    Raises:
        DataError: no label of the data is known to the model, no row has a label, or nothing is new.
    """
    chosen, part = (data, "test") if data.test_only else (data.refit(), "train")
    matched = match(state, chosen, part, None)
    new, width = matched.split, len(matched.labels)
    known: dict[str, list[int]] = {}
    for row, text in enumerate(train.texts):
        known.setdefault(text, []).append(row)
    last = {text: row for row, text in enumerate(new.texts)}
    wanted = _same_width(new.targets, width)
    old = _without(_same_width(train.targets, width), state.removed)
    sizes = np.diff(wanted.indptr)
    bare = [row for text, row in last.items() if sizes[row] == 0 and text not in known]
    fresh = np.array([row for text, row in last.items() if sizes[row] and text not in known], dtype=np.int64)
    pairs = np.array([(r, row) for text, row in last.items() for r in known.get(text, ())], dtype=np.int64)
    pairs = pairs.reshape(-1, 2)
    differs = np.diff(abs(old[pairs[:, 0]] - wanted[pairs[:, 1]]).tocsr().indptr) > 0 if len(pairs) else []
    differing = pairs[np.asarray(differs, dtype=bool)]
    if not len(fresh) and not len(differing):
        what = f"{data.name}: nothing new, " + ("no row has a label" if new.targets.nnz == 0 else "all rows are known")
        raise DataError(what, remedy="give rows with new texts or other labels")
    source = np.arange(old.shape[0])  # of the targets of each row: an old row, or a new one, counted after the old
    source[differing[:, 0]] = old.shape[0] + differing[:, 1]
    source = np.concatenate([source, old.shape[0] + fresh])
    targets = sparse.csr_matrix(sparse.vstack([old, wanted], format="csr")[source])
    texts = [*train.texts, *(new.texts[row] for row in fresh.tolist())]
    place_of = np.full(old.shape[0] + len(new), -1, dtype=np.int64)
    place_of[source] = np.arange(len(source))
    more = new.filter.copy()
    more[:, 0] = place_of[old.shape[0] + more[:, 0]] if len(more) else more[:, 0]
    filters = np.concatenate([train.filter, more[more[:, 0] >= 0]])
    if len(differing) and len(filters):  # what a person says is right counts
        true = np.isin(filters[:, 0], differing[:, 0]) & (np.asarray(targets[filters[:, 0], filters[:, 1]])[0] > 0)
        filters = filters[~true]
    whole = Split(texts, targets, [f"row-{row}" for row in range(len(texts))], np.unique(filters, axis=0))
    keep = np.flatnonzero(np.diff(targets.indptr) > 0)
    position = np.full(len(texts), -1, dtype=np.int64)
    position[keep] = np.arange(len(keep))
    changed_rows, first = position[np.unique(differing[:, 0])], old.shape[0]
    held = position[train.held]
    return MergedRows(
        split=whole.rows(keep),
        new=Labels(matched.labels.texts[len(state.labels) :], matched.labels.uids[len(state.labels) :]),
        fresh=position[np.arange(first, len(texts))],
        corrected=changed_rows[changed_rows >= 0],
        held=held[held >= 0],
        lost=np.unique(old[differing[:, 0]].indices).astype(np.int64),
        unchanged=len(last) - len(bare) - len(fresh) - len(np.unique(differing[:, 1])),
        repeated=len(new) - len(last),
        bare=len(bare),
        dropped=int((changed_rows < 0).sum()),
    )


def _same_width(targets: sparse.csr_matrix, width: int) -> sparse.csr_matrix:
    """Return the same cells over more labels."""
    return sparse.csr_matrix((targets.data, targets.indices, targets.indptr), shape=(targets.shape[0], width))


def _without(targets: sparse.csr_matrix, labels: NDArray[np.int64]) -> sparse.csr_matrix:
    """Return the cells of all other labels."""
    if not len(labels):
        return targets
    cells = targets.tocoo()
    keep = ~np.isin(cells.col, labels)
    return sparse.csr_matrix((cells.data[keep], (cells.row[keep], cells.col[keep])), shape=targets.shape)
