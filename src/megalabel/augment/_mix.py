"""Rows made of two rows: words of both, targets in proportion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Split
from megalabel.errors import SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["mix"]


def mix(
    first: Split,
    second: Split,
    pairs: NDArray[np.int64],
    uids: list[str],
    *,
    alpha: float,
    rng: np.random.Generator,
) -> Split:
    """Return one row for each pair [n, 2] of a row of ``first`` and a row of ``second``.

    Of each text a run of words is kept, a share drawn from Beta(alpha, alpha) of one and
    the rest to 1 of the other, at least one word; targets are weighted by the share of the
    words each brought. A filter pair of either row stays one unless the other row has it as
    a target.
    """
    if not alpha > 0:
        raise SettingError(f"alpha must be above 0, not {alpha}", remedy="1 draws shares uniformly")
    wanted = rng.beta(alpha, alpha, len(pairs))
    places = rng.random((len(pairs), 2))
    texts, shares = [], np.empty(len(pairs))
    for n, (a, b) in enumerate(pairs.tolist()):
        left = _run(first.texts[a].split(), wanted[n], places[n, 0])
        right = _run(second.texts[b].split(), 1 - wanted[n], places[n, 1])
        texts.append(" ".join([*left, *right]))
        shares[n] = len(left) / (len(left) + len(right)) if left or right else wanted[n]
    targets = sparse.diags(shares) @ first.targets[pairs[:, 0]] + sparse.diags(1 - shares) @ second.targets[pairs[:, 1]]
    targets = sparse.csr_matrix(targets, dtype=np.float32)
    np.minimum(targets.data, 1.0, out=targets.data)
    targets.eliminate_zeros()
    found = first.excluded()[pairs[:, 0]] + second.excluded()[pairs[:, 1]]
    known = targets.astype(bool)
    cells = (found.astype(bool) > found.astype(bool).multiply(known)).tocoo()
    return Split(texts, targets, uids, np.stack([cells.row, cells.col], axis=1).astype(np.int64))


def _run(words: list[str], share: float, place: float) -> list[str]:
    """Return a run of neighbouring words, that share of them and at least one; ``place`` in [0, 1) says where."""
    size = min(len(words), max(1, round(share * len(words))))
    start = int(place * (len(words) - size + 1))
    return words[start : start + size]
