"""Match the labels of a data set with those of a model, so that it can be measured there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Labels, Split
from megalabel.errors import DataError
from megalabel.metrics.evaluate import evaluate
from megalabel.metrics.thresholds import SetReport
from megalabel.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.metrics.report import Report
    from megalabel.metrics.thresholds import Thresholds
    from megalabel.model.labels import LabelState
    from megalabel.model.train_rows import TrainRows

__all__ = ["Matched", "match"]

_LISTED = 5  # unknown labels named in a message


@dataclass(frozen=True)
class Matched:
    """Rows to measure a model on; their columns are the M labels of the model, then labels it does not know.

    A label is matched by its uid; where the data has only names (its uids are its texts), by its text as well. A label
    that the model does not know counts as missed. A label that was removed from the model is left out of the rows; a
    label that was added to the model and is unknown to the data is left out of the rankings.
    """

    name: str  # of the data
    part: str  # train, val or test
    split: Split  # [N, M + U]
    labels: Labels  # [M + U]
    counts: NDArray[np.int64]  # [M + U]
    points: int
    propensity: tuple[float, float]
    unknown: Sequence[str] = ()  # [U] texts
    in_rows: int = 0  # rows with an unknown label
    removed: int = 0  # labels of the rows that were removed from the model
    dropped: int = 0  # rows that had no other label
    hidden: Sequence[int] = ()  # labels of the model to leave out of the rankings
    gone: Sequence[int] = ()  # removed labels of the model
    trained: int = 0  # rows whose text is a training text, if the data is a table of test rows

    @classmethod
    def of_split(cls, state: LabelState, split: Split) -> Matched:
        """Return the rows of a split over the labels of the model."""
        if split.targets.shape[1] != len(state.labels):
            what = f"this split is over {split.targets.shape[1]:,} labels, the model knows {len(state.labels):,}"
            raise DataError(what, remedy="evaluate on the data the model was trained for")
        return cls("", "", split, state.labels, state.stats.counts, state.stats.points, state.stats.propensity)

    @property
    def excluded(self) -> sparse.csr_matrix:
        """The filter pairs as a matrix [N, M], for a search to leave out."""
        return self.split.excluded()[:, : len(self.labels) - len(self.unknown)]

    def measure(
        self,
        ids: NDArray[np.integer[Any]],
        *,
        scores: NDArray[np.floating[Any]] | None = None,
        thresholds: Thresholds | None = None,
        **options: Any,
    ) -> Report:
        """Measure rankings [N, K] of the model; labels that do not count have no column.

        With their scores and the thresholds of the model, the labels above the threshold are measured as well. Options
        as in ``evaluate``.
        """
        part, counts, pairs = self.split, self.counts, self.split.filter
        targets = part.targets
        if len(self.hidden) or len(self.gone):
            keep = np.setdiff1d(np.arange(len(self.labels)), [*self.hidden, *self.gone])
            position = np.full(len(self.labels) + 1, -1, dtype=np.int64)  # the last one is for id -1
            position[keep] = np.arange(len(keep))
            targets, counts, ids = targets[:, keep], counts[keep], position[ids]
            pairs = np.stack([pairs[:, 0], position[pairs[:, 1]]], axis=1)[position[pairs[:, 1]] >= 0]
        A, B = self.propensity
        report = evaluate(ids, targets, counts=counts, points=self.points, A=A, B=B, filter=pairs, **options)
        if scores is None or thresholds is None:
            return report
        return replace(report, sets=SetReport.of(thresholds, ids, scores, targets))

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures has to know, a line each."""
        lines = []
        if self.unknown:
            shown = ", ".join(repr(text[:60]) for text in self.unknown[:_LISTED])
            more = f" and {len(self.unknown) - _LISTED:,} more" if len(self.unknown) > _LISTED else ""
            rows = f"{self.in_rows:,} of {len(self.split):,} rows"
            lines.append(f"{_were(len(self.unknown), 'is')} unknown to the model, missed in {rows}: {shown}{more}")
        if self.removed:
            rows = f"; so are {self.dropped:,} rows without another" if self.dropped else ""
            lines.append(f"{_were(self.removed, 'was')} removed from the model and left out{rows}")
        if self.hidden:
            lines.append(
                f"{_were(len(self.hidden), 'was')} added to the model later and left out: the data has no such label"
            )
        if self.trained:
            lines.append(
                f"{self.trained:,} of {len(self.split):,} texts are training texts of the model, so the figures "
                "flatter it; of the file it was trained on, --test-share 0.1 takes the rows that training left out"
            )
        return [f"{self.name}: {line}" for line in lines]


def match(state: LabelState, data: Dataset, split: str, train: TrainRows | None) -> Matched:
    """Match the rows of a split with the labels of a model.

    Data without train rows is measured with the label frequencies of the model, other data with its own.

    Args:
        state: the labels of the model.
        data: the data set.
        split: which of its rows.
        train: the training rows of the model, to recognise them in a table; None if they were not saved.

    Raises:
        DataError: the data has no such rows, no label of the model, or labels of the same uid but other texts.
    """
    part, labels = data.split(split), state.labels
    stats = state.stats
    if _same(data.labels.uids, labels.uids) and not len(state.removed) and data.points:
        _check_texts(data, labels, np.arange(len(labels)))
        return Matched(data.name, split, part, labels, data.counts, data.points, data.propensity)
    places = _places(data.labels, labels)
    _check_texts(data, labels, places)
    used = np.bincount(part.targets.indices, minlength=len(data.labels)) > 0
    new = np.flatnonzero(used & (places < 0))
    places[new] = np.arange(len(labels), len(labels) + len(new))
    removed = np.isin(places, state.removed)
    moved = _move(part, np.where(removed, -1, places), len(labels) + len(new))
    lost = (np.diff(moved.targets.indptr) == 0) & (np.diff(part.targets.indptr) > 0)
    kept = moved.rows(np.flatnonzero(~lost)) if lost.any() else moved
    if kept.targets.nnz == 0:
        raise DataError(f"{data.name}: no {split} row has a label that the model still has", remedy="give other rows")
    if data.points:
        counts = np.zeros(len(labels) + len(new), dtype=np.int64)
        counts[places[places >= 0]] = data.counts[places >= 0]
        points, propensity = data.points, data.propensity
    else:
        counts = np.concatenate([stats.counts, np.zeros(len(new), dtype=np.int64)])
        points, propensity = stats.points, stats.propensity
    first_added = len(labels) if stats.trained is None else stats.trained
    added = np.setdiff1d(np.arange(first_added, len(labels)), places)
    texts = [data.labels.texts[label] for label in new.tolist()]
    uids = [data.labels.uids[label] for label in new.tolist()]
    known_texts = set() if train is None or data.points else set(train.texts)
    return Matched(
        name=data.name,
        part=split,
        split=kept,
        labels=Labels([*labels.texts, *texts], [*labels.uids, *uids], labels.concepts),
        counts=counts,
        points=points,
        propensity=propensity,
        unknown=texts,
        in_rows=int((kept.targets[:, len(labels) :].getnnz(axis=1) > 0).sum()),
        removed=int((used & removed).sum()),
        dropped=int(lost.sum()),
        hidden=np.setdiff1d(added, state.removed).tolist(),
        gone=state.removed.tolist(),
        trained=sum(text in known_texts for text in kept.texts),
    )


def _places(labels: Labels, known: Labels) -> NDArray[np.int64]:
    """Return for each label its id in ``known``: by uid, else, if its uid is its text, by a text that only one has."""
    ids = {uid: place for place, uid in enumerate(known.uids)}
    texts: dict[str, int] = {}
    for place, text in enumerate(known.texts):
        texts[text] = -1 if text in texts else place
    places = [
        ids.get(uid, texts.get(text, -1) if uid == text else -1)
        for uid, text in zip(labels.uids, labels.texts, strict=True)
    ]
    found, counts = np.unique([place for place in places if place >= 0], return_counts=True)
    twice = set(found[counts > 1].tolist())  # a uid and a text that name one label: the uid counts
    kept = [-1 if place in twice and uid not in ids else place for place, uid in zip(places, labels.uids, strict=True)]
    return np.array(kept, dtype=np.int64)


def _check_texts(data: Dataset, labels: Labels, places: NDArray[np.int64]) -> None:
    """Raise a DataError for labels that are none of the model's, or have the uids of others."""
    remedy = "evaluate on data with the labels the model was trained on"
    matched = np.flatnonzero(places >= 0)
    if not len(matched):
        shown = ", ".join(repr(text[:40]) for text in data.labels.texts[:3])
        what = f"none of its {len(data.labels):,} labels ({shown}, ...) is among the {len(labels):,} of the model"
        raise DataError(f"{data.name}: {what}", remedy=remedy)
    same = by_name = 0
    for label, place in zip(matched.tolist(), places[matched].tolist(), strict=True):
        text = data.labels.texts[label]
        same += text == labels.texts[place]
        by_name += text == data.labels.uids[label]  # has no other text
    if 2 * (same + by_name) < len(matched):
        what = f"only {same:,} of {len(matched):,} labels of {data.name} have the text the model knows them by"
        raise DataError(what, remedy=remedy)


def _same(uids: Sequence[str], others: Sequence[str]) -> bool:
    return len(uids) == len(others) and all(a == b for a, b in zip(uids, others, strict=True))


def _move(part: Split, places: NDArray[np.int64], width: int) -> Split:
    """Return the rows with label l in column ``places[l]``, or nowhere if that is -1."""
    pairs = part.targets.tocoo()
    columns = places[pairs.col]
    keep = columns >= 0
    targets = sparse.csr_matrix((pairs.data[keep], (pairs.row[keep], columns[keep])), shape=(len(part), width))
    filtered = np.stack([part.filter[:, 0], places[part.filter[:, 1]]], axis=1)
    return Split(part.texts, targets, part.uids, filtered[filtered[:, 1] >= 0])


def _were(count: int, verb: str) -> str:
    """Return the number of labels as the subject of a sentence.

    >>> _were(1, "was"), _were(2, "is")
    ('1 label was', '2 labels are')
    """
    return f"{counted(count, 'label')} {verb if count == 1 else 'were' if verb == 'was' else 'are'}"
