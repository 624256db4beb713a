"""Filter pairs for symmetric sets, as the extreme classification repository defines them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.items import item_pairs, match_items
from megalabel.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from megalabel.data.dataset import Dataset, Split

__all__ = ["make_filters"]


def make_filters(data: Dataset) -> Dataset:
    """Return the set with filter pairs built from its items.

    Train rows: the item itself (A, A). Val and test rows: the item itself, and (B, A)
    whenever (A, B) is a train pair and both are known items; such pairs also leave the
    truth: otherwise a model would be rewarded for pairs it has seen in the other direction.

    A test or val row whose whole truth is filtered stays, without a relevant label.
    """
    items = {name: match_items(split, data.labels) for name, split in data.splits.items()}
    if all(np.all(numbers < 0) for numbers in items.values()):
        raise DataError(
            f"{data.name}: points and labels share no items, so there is nothing to filter",
            remedy="give a point and a label that are the same item the same uid",
        )
    reverse = item_pairs(data.train, items["train"]).T.tocsr()
    parts: dict[str, Split] = {"train": data.train.filtering(own_pairs(items["train"]))}
    for name in ("val", "test"):
        if name in data.splits:
            known = np.concatenate([own_pairs(items[name]), reciprocal_pairs(items[name], reverse)])
            parts[name] = data.splits[name].filtering(known)
    return data.replace(**parts)


def own_pairs(items: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (row, its own item) for every row that is an item."""
    rows = np.flatnonzero(items >= 0)
    return np.stack([rows, items[rows]], axis=1)


def reciprocal_pairs(items: NDArray[np.int64], reverse: sparse.csr_matrix) -> NDArray[np.int64]:
    """Return (row of item b, a) for every cell (b, a) of ``reverse`` [L, L]."""
    rows = np.flatnonzero(items >= 0)
    cells = reverse[items[rows]].tocoo()
    return np.stack([rows[cells.row], cells.col.astype(np.int64)], axis=1)
