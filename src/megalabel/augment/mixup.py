"""MixUp: rows halfway between two rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.augment._mix import mix
from megalabel.augment._rows import how_many, name_rows

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["mixup"]


def mixup(data: Dataset, *, share: float = 1.0, alpha: float = 1.0, seed: int = 0) -> Dataset:
    r"""Add rows that mix two train rows, their texts and their targets.

    .. math:: x = \lambda x_a \oplus (1 - \lambda) x_b, \qquad y = \lambda y_a + (1 - \lambda) y_b

    Zhang et al. 2018, "mixup: beyond empirical risk minimization", equation 1, mixes
    inputs that are vectors. Texts are not, so this is a reading of it on words, not the
    original: a share drawn from Beta(alpha, alpha) of one text (a run of its words) is
    written before the rest to 1 of the other, and lambda is the share of the words that
    came from each. For an encoder that averages word vectors the vector of the new text
    *is* the mix, lambda times the mean of the words of one plus (1 - lambda) times that of the
    other, up to its length; for other encoders it is like it. Mixing the vectors themselves
    would need the encoder, which no data set knows.

    Args:
        data: the set; only train grows.
        share: mixed rows, as a share of the train rows; each has a first row of its own.
        alpha: 1 draws the share uniformly; below, most rows stay close to one of the two.
        seed: of all draws.

    >>> from megalabel import Dataset
    >>> rows = [("red leather shoe", [0]), ("blue hat", [1])]
    >>> more = mixup(Dataset.from_lists(rows, [("hat", [1])], ["a shoe", "a hat"]), seed=0)
    >>> more.train.texts[2], more.train.targets[2].toarray().tolist()
    ('red leather shoe hat', [[0.75, 0.25]])
    """
    train, rng = data.train, np.random.default_rng(seed)
    number = how_many(share, len(train))
    rows = np.sort(rng.choice(len(train), number, replace=False))
    others = (rows + 1 + rng.integers(0, max(1, len(train) - 1), number)) % len(train)
    uids = name_rows("mixup", rows.tolist(), train.uids)
    mixed = mix(train, train, np.stack([rows, others], axis=1), uids, alpha=alpha, rng=rng)
    return data.replace(train=train + mixed)
