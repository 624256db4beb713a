"""Check the targets of label texts against train rows of the same text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.data.texts import find_texts, first_equal, take_texts

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["Agreement", "agreement"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many targets of added rows agree with the train rows of the same text."""

    texts: int  # added rows whose text is also a train text
    targets: int  # their targets, without the label of the text itself
    right: int  # targets that the train row of the same text has too

    @property
    def share(self) -> float:
        """Return the share of targets that are right, 0 if there are none."""
        return self.right / max(1, self.targets)


def agreement(before: Dataset, after: Dataset) -> Agreement:
    """Compare the rows that an augmentation added with train rows of the same text.

    Gandalf assumes that labels of the same points are relevant to each other's texts. This is
    true of "bought together" or "see also", but not of relations with a direction ("depends
    on") or between siblings. If label texts are also train texts, this check shows it before
    training. A label text has its own label as a target by definition, which is not counted.

    Args:
        before: the original set.
        after: the result of :func:`~megalabel.augment.gandalf` with ``known="ignore"``; with ``merge``, texts that
            are train texts have only targets that are right.

    >>> from megalabel import Dataset
    >>> from megalabel.augment import gandalf
    >>> rows = [("a", [1, 2]), ("b", [2]), ("x", [0, 1, 2]), ("y", [1, 2])]
    >>> data = Dataset.from_lists(rows, [("z", [0])], ["a", "b", "c"])
    >>> agreement(data, gandalf(data, known="ignore"))
    Agreement(texts=2, targets=4, right=3)
    """
    rows = np.flatnonzero(find_texts(after.train.uids, before.train.uids) < 0)
    texts = take_texts(after.train.texts, rows)
    same, labels = find_texts(texts, before.train.texts), find_texts(texts, before.labels.texts)
    both = (same >= 0) & (labels >= 0)
    if not both.any():
        return Agreement(0, 0, 0)
    rows, same, labels = rows[both], first_equal(before.train.texts)[same[both]], labels[both]
    labels = first_equal(before.labels.texts)[labels]
    targets, truth = (
        _pattern(split.targets[numbers]) for split, numbers in ((after.train, rows), (before.train, same))
    )
    itself = _pattern(sparse.csr_matrix((np.ones(len(labels)), (np.arange(len(labels)), labels)), shape=targets.shape))
    others = targets - targets.multiply(itself)
    return Agreement(len(rows), int(others.sum()), int(others.multiply(truth).sum()))


def _pattern(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the non-zero cells as ones."""
    ones = sparse.csr_matrix(matrix, dtype=np.float32, copy=True)
    ones.eliminate_zeros()
    ones.data[:] = 1
    return ones
