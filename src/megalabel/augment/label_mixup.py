"""Label-MixUp: rows that mix a train row and a label text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import PositiveFloat
from scipy import sparse

from megalabel.augment._rows import Augmentation, TokenTable, check_texts, how_many, name_rows
from megalabel.augment.mixup import mix
from megalabel.data.dataset import Split

if TYPE_CHECKING:
    from collections.abc import Callable

    from megalabel.data.dataset import Dataset

__all__ = ["LabelMixupSettings", "label_mixup"]


class LabelMixupSettings(Augmentation):
    """Settings of :func:`label_mixup`, which explains them."""

    kind: Literal["label_mixup"] = "label_mixup"
    alpha: PositiveFloat = 1.0

    def apply(
        self, data: Dataset, *, seed: int, token_table: TokenTable, say: Callable[[str], None] | None = None
    ) -> Dataset:
        """Return the data set with mixed rows among its train rows."""
        del token_table, say
        return label_mixup(data, share=self.share, alpha=self.alpha, seed=seed)


def label_mixup(data: Dataset, *, share: float = 1.0, alpha: float = 1.0, seed: int = 0) -> Dataset:
    r"""Add rows that mix a train row with a label text, which has the label itself as its target.

    .. math:: x = \lambda x_a \oplus (1 - \lambda) z_l, \qquad y = \lambda y_a + (1 - \lambda) e_l

    A baseline of the Gandalf paper (Kharbanda et al. 2024, arXiv 2405.04545), which does not
    say which label is mixed with which row: here labels are drawn uniformly, so that a rare
    label is seen as often as a frequent one. :func:`mixup` explains how texts are mixed, in
    words instead of vectors.

    Args:
        data: the set; every label needs a text; only train grows.
        share: mixed rows, as a share of the train rows.
        alpha: 1 draws the share uniformly; below 1, most rows stay close to one of the two.
        seed: random seed.

    >>> from megalabel import Dataset
    >>> rows = [("red leather shoe", [0]), ("blue hat", [1])]
    >>> more = label_mixup(Dataset.from_lists(rows, [("hat", [1])], ["a shoe", "a hat"]), seed=1)
    >>> more.train.texts[2], more.train.targets[2].toarray().tolist()
    ('shoe hat', [[0.5, 0.5]])
    """
    check_texts(data)
    train, rng = data.train, np.random.default_rng(seed)
    number, size = how_many(share, len(train)), len(data.labels)
    rows = np.sort(rng.choice(len(train), number, replace=False))
    label_rows = Split(data.labels.texts, sparse.identity(size, dtype=np.float32, format="csr"), data.labels.uids)
    uids = name_rows("label_mixup", rows.tolist(), train.uids)
    pairs = np.stack([rows, rng.integers(0, size, number)], axis=1)
    return data.replace(train=train + mix(train, label_rows, pairs, uids, alpha=alpha, rng=rng))
