"""MixUp: rows that mix two train rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import PositiveFloat
from scipy import sparse

from megalabel.augment._rows import Augmentation, TokenTable, how_many, name_rows
from megalabel.data.dataset import Split
from megalabel.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset

__all__ = ["MixupSettings", "mix", "mixup"]


class MixupSettings(Augmentation):
    """Settings of :func:`mixup`, which explains them."""

    kind: Literal["mixup"] = "mixup"
    alpha: PositiveFloat = 1.0

    def apply(
        self, data: Dataset, *, seed: int, token_table: TokenTable, say: Callable[[str], None] | None = None
    ) -> Dataset:
        """Return the data set with mixed rows among its train rows."""
        del token_table, say
        return mixup(data, share=self.share, alpha=self.alpha, seed=seed)


def mixup(data: Dataset, *, share: float = 1.0, alpha: float = 1.0, seed: int = 0) -> Dataset:
    r"""Add rows that mix two train rows, their texts and their targets.

    .. math:: x = \lambda x_a \oplus (1 - \lambda) x_b, \qquad y = \lambda y_a + (1 - \lambda) y_b

    Zhang et al. 2018, "mixup: beyond empirical risk minimization", equation 1, mixes input
    vectors. Here words are mixed instead: consecutive words of one text, a share drawn from
    Beta(alpha, alpha), are followed by consecutive words of the other, the share that remains;
    lambda is the share of words from each. For an encoder that averages word vectors, the new
    text has the mixed vector, lambda times the mean of one plus (1 - lambda) times the mean of
    the other, up to its length; for other encoders it is similar. Mixing the vectors would
    need the encoder, which a data set does not have.

    Args:
        data: the set; only train grows.
        share: mixed rows, as a share of the train rows; each has a different first row.
        alpha: 1 draws the share uniformly; below 1, most rows stay close to one of the two.
        seed: random seed.

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


def mix(
    first: Split,
    second: Split,
    pairs: NDArray[np.int64],
    uids: Sequence[str],
    *,
    alpha: float,
    rng: np.random.Generator,
) -> Split:
    """Return one row for each pair [n, 2] of a row of ``first`` and a row of ``second``.

    Consecutive words of each text are kept, a share drawn from Beta(alpha, alpha) of one and
    the remaining share of the other, at least one word each; targets are weighted by the share
    of words from each. A filter pair of one row is kept unless the other row has it as a
    target.
    """
    if not alpha > 0:
        raise SettingError(f"alpha must be above 0, not {alpha}", remedy="1 draws shares uniformly")
    drawn = rng.beta(alpha, alpha, len(pairs))
    positions = rng.random((len(pairs), 2))
    texts, shares = [], np.empty(len(pairs))
    for n, (a, b) in enumerate(pairs.tolist()):
        left = _run(first.texts[a].split(), drawn[n], positions[n, 0])
        right = _run(second.texts[b].split(), 1 - drawn[n], positions[n, 1])
        texts.append(" ".join([*left, *right]))
        shares[n] = len(left) / (len(left) + len(right)) if left or right else drawn[n]
    targets = sparse.diags(shares) @ first.targets[pairs[:, 0]] + sparse.diags(1 - shares) @ second.targets[pairs[:, 1]]
    targets = sparse.csr_matrix(targets, dtype=np.float32)
    np.minimum(targets.data, 1.0, out=targets.data)
    targets.eliminate_zeros()
    excluded = first.excluded()[pairs[:, 0]] + second.excluded()[pairs[:, 1]]
    known = targets.astype(bool)
    cells = (excluded.astype(bool) > excluded.astype(bool).multiply(known)).tocoo()
    return Split(texts, targets, uids, np.stack([cells.row, cells.col], axis=1).astype(np.int64))


def _run(words: list[str], share: float, position: float) -> list[str]:
    """Return consecutive words, this share of all and at least one, starting at the relative ``position`` in [0, 1)."""
    size = min(len(words), max(1, round(share * len(words))))
    start = int(position * (len(words) - size + 1))
    return words[start : start + size]
