"""Split precision by how frequent the labels are: where do the hits come from?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError, SettingError
from megalabel.metrics.ranking import up_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from megalabel.metrics.hits import Hits

__all__ = ["Bin", "equal_volume_bins", "head_torso_tail", "volume_groups"]


@dataclass(frozen=True, slots=True)
class Bin:
    """A group of labels of similar training frequency, and its part of the precision."""

    name: str
    labels: int  # how many labels
    positives: int  # training positives of all of them
    least: int  # training positives of its rarest label
    largest: int  # training positives of its most frequent label
    precision: dict[int, float]  # k -> the part of P@k due to hits on these labels, as a fraction

    @property
    def positives_per_label(self) -> float:
        """Mean number of training positives."""
        return self.positives / max(1, self.labels)


def equal_volume_bins(
    hits: Hits, counts: NDArray[np.integer[Any]], ks: Sequence[int] = (1, 3, 5), *, bins: int = 5
) -> tuple[Bin, ...]:
    """Cut labels, most frequent first, into bins that hold the same number of training positives.

    Bin 1 is the head: few labels with many points each. A label falls into the bin that holds its middle
    positive; equally frequent labels are taken in order of id. Labels without a training point are in the
    last bin. The part of a bin in P@k is (hits on its labels among the k best) / (k N); the parts add up
    to P@k. A label larger than a bin can leave the next bin empty.

    >>> from scipy.sparse import csr_matrix
    >>> from megalabel.metrics import find_hits
    >>> hits = find_hits(np.array([[0], [2]]), csr_matrix([[1, 0, 0], [0, 0, 1]]))
    >>> [(part.name, part.labels, part.precision[1]) for part in
    ...  equal_volume_bins(hits, np.array([4, 2, 2]), [1], bins=2)]
    [('1 head', 1, 0.5), ('2 tail', 2, 0.5)]
    """
    if bins < 1:
        raise SettingError(f"cannot make {bins} bins", remedy="ask for at least 1")
    counts = _counts(hits, counts)
    ends = {1: " head", bins: " tail"} if bins > 1 else {}
    names = [f"{number}{ends.get(number, '')}" for number in range(1, bins + 1)]
    return _split(hits, counts, ks, volume_groups(counts, bins), names)


def volume_groups(counts: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """Return the bin [L] of each label in :func:`equal_volume_bins`: 0 for the head, bins - 1 for the tail.

    >>> volume_groups(np.array([2, 4, 2, 0]), 2).tolist()
    [1, 0, 1, 1]
    """
    order = np.argsort(-counts, kind="stable")
    sizes = counts[order].astype(np.float64)
    middle = np.cumsum(sizes) - sizes / 2
    group = np.empty(len(counts), dtype=np.int64)
    group[order] = np.where(sizes > 0, np.minimum(middle * bins // max(1.0, sizes.sum()), bins - 1), bins - 1)
    return group


def head_torso_tail(hits: Hits, counts: NDArray[np.integer[Any]], ks: Sequence[int] = (1, 3, 5)) -> tuple[Bin, ...]:
    """Group labels by training points, as is usual in sponsored search.

    Head: more than 100; torso: 10 to 100; tail: 1 to 9; unseen: none. Their parts of P@k add up to P@k.
    """
    counts = _counts(hits, counts)
    group = np.select([counts > 100, counts >= 10, counts >= 1], [0, 1, 2], default=3)
    return _split(hits, counts, ks, group, ["head", "torso", "tail", "unseen"])


def _split(
    hits: Hits, counts: NDArray[np.int64], ks: Sequence[int], group: NDArray[np.int64], names: list[str]
) -> tuple[Bin, ...]:
    cuts = hits.at(ks)
    hit_group = group[hits.label]
    parts = []
    for number, name in enumerate(names):
        sizes = counts[group == number]
        share = up_to(hits.rank[hit_group == number], None, cuts) / (cuts * max(1, hits.rows))
        precision = {int(k): float(value) for k, value in zip(cuts, share, strict=True)}
        least, largest = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
        parts.append(Bin(name, len(sizes), int(sizes.sum()), least, largest, precision))
    return tuple(parts)


def _counts(hits: Hits, counts: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    counts = np.asarray(counts)
    if counts.shape != (hits.labels,):
        raise DataError(f"{counts.size} label counts for {hits.labels} labels", remedy="give one count per label")
    return counts.astype(np.int64)
