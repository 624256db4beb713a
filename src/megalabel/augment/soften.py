"""Soft targets: train rows whose targets are mixed with what a teacher answers, and label texts as further rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.augment._rows import name_rows
from megalabel.data.dataset import Split
from megalabel.data.items import match_items
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megalabel.data.dataset import Dataset

__all__ = ["soften", "texts_to_ask"]


def texts_to_ask(data: Dataset, *, label_texts: bool = True) -> list[str]:
    """Return the texts that :func:`soften` needs answers for, each once: of train, of val (for a refit), of labels."""
    rows = [*data.train.texts, *(() if data.val is None else data.val.texts)]
    return list(dict.fromkeys([*rows, *(data.labels.texts if label_texts else ())]))


def soften(
    data: Dataset,
    places: Mapping[str, int],
    answers: sparse.csr_matrix,
    *,
    weight: float = 0.5,
    least: float = 0.0,
    label_texts: bool = True,
) -> Dataset:
    r"""Mix the train targets with a teacher's probabilities, and add label texts as train rows with these alone.

    .. math:: y'_{il} = (1 - w) \, y_{il} + w \, p_l(x_i)

    for a train text x_i, with p_l(x) the teacher's probability of label l among its best labels, else 0. A label text
    that is no train text becomes a row with its own label at 1 and p for all others. Val, test and propensities do
    not change.

    The teacher may have been trained on the validation rows. Nothing of what it says of them enters: a label text that
    is the text of a validation row adds no row, and where points and labels are the same items, a label that is the
    item of a validation row takes no probability (of a pair (b, a) whose reverse was held out).

    Args:
        data: the set, with validation rows held out already.
        places: the row of each text in ``answers``.
        answers: [n, L] probabilities in (0, 1].
        weight: w, from 0 (true labels alone) to 1 (the teacher alone).
        least: a smaller probability counts as 0.
        label_texts: add label texts.

    >>> from megalabel import Dataset
    >>> data = Dataset.from_lists([("red shoe", [0])], [("hat", [1])], ["shoe", "hat"])
    >>> answers = sparse.csr_matrix(np.array([[0.5, 0.25], [0.75, 0], [0, 0.5]], dtype=np.float32))
    >>> soft = soften(data, {"red shoe": 0, "shoe": 1, "hat": 2}, answers)
    >>> soft.train.texts, soft.train.targets.toarray().tolist()
    (['red shoe', 'shoe', 'hat'], [[0.75, 0.125], [1.0, 0.0], [0.0, 1.0]])
    """
    if not 0 <= weight <= 1:
        raise SettingError(f"weight must lie in 0 to 1, not {weight}", remedy="try 0.5")
    if answers.shape[1] != len(data.labels):
        raise DataError(f"the teacher answers with {answers.shape[1]:,} labels, {data.name} has {len(data.labels):,}")
    hidden = np.empty(0, dtype=np.int64)
    kept = np.where(answers.data < least, np.float32(0), answers.data)
    answers = sparse.csr_matrix((kept, answers.indices, answers.indptr), shape=answers.shape)
    if data.val is not None:
        items = match_items(data.val, data.labels)
        hidden = np.unique(items[items >= 0])
        allowed = np.ones(len(data.labels), dtype=np.float32)
        allowed[hidden] = 0
        answers = sparse.csr_matrix(answers @ sparse.diags(allowed), dtype=np.float32)
    train = data.train
    known = answers[[places[text] for text in train.texts]]
    mixed = sparse.csr_matrix(train.targets * (1 - weight) + known * weight, dtype=np.float32)
    mixed.eliminate_zeros()
    mixed.data = np.minimum(mixed.data, 1)
    soft = replace(train, targets=mixed).without(train.filter)
    if label_texts:
        taken = {*train.texts, *(() if data.val is None else data.val.texts)}
        gone = set(hidden.tolist())
        fresh = {text: label for label, text in enumerate(data.labels.texts)
                 if text.strip() and text not in taken and label not in gone}  # fmt: skip
        if fresh:
            soft = soft + _label_rows(data, np.array(sorted(fresh.values())), places, answers)
    return data.replace(train=soft)


def _label_rows(
    data: Dataset, labels: np.ndarray[tuple[int], np.dtype[np.int64]], places: Mapping[str, int],
    answers: sparse.csr_matrix,
) -> Split:  # fmt: skip
    """Return rows of label texts, each with its own label at 1."""
    texts = [data.labels.texts[label] for label in labels.tolist()]
    ones = np.ones(len(labels), dtype=np.float32)
    own = sparse.csr_matrix((ones, (np.arange(len(labels)), labels)), shape=(len(labels), len(data.labels)))
    targets = sparse.csr_matrix(answers[[places[text] for text in texts]].maximum(own), dtype=np.float32)
    uids = name_rows("distil", (data.labels.uids[label] for label in labels.tolist()), data.train.uids)
    return Split(texts, targets, uids)
