"""Balanced clusters of vectors, so that similar rows can share a batch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import embedding_bag, normalize

from megalabel.batching._random import generator
from megalabel.errors import DataError, SettingError
from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["balanced_clusters"]

_LEAST_GAIN = 1e-4  # stop when the mean similarity grows by less
_ROUNDS = 50  # and in any case after this many
_SAMPLE = 32_768  # rows of a large cluster that find its two centres


@torch.no_grad()
def balanced_clusters(vectors: Tensor | NDArray[np.floating], size: int, *, seed: int) -> NDArray[np.int64]:
    """Split rows into ceil(N / size) clusters of near-equal size by recursive balanced 2-means on cosine.

    Each cluster is split in two: from two random rows as centres, rows are sorted by the
    difference of their similarities to the two and cut where both sides get their share
    of the final clusters (the middle, where their number is even); centres become the
    normalised means, until the mean similarity to them grows by less than 1e-4. Batches
    of UniDEC (Kharbanda et al. 2024, arXiv 2405.03714) and NGAME (Dahiya et al., WSDM 2023).
    The number of clusters need not be a power of two: sizes are floor(N / K) and
    ceil(N / K), never above ``size``.

    All clusters of a level are split together. One with more than 32,768 rows finds its
    centres on a random 32,768 of them; all rows then take part in the cut. The vectors are
    neither moved nor copied (but for a type other than float32); further memory is at most
    that of two centres per cluster. Equal seed, equal clusters, for any number of threads.

    Args:
        vectors: [N, d], normalised or not; on a CUDA device the work is done there.
        size: rows per cluster at most.
        seed: decides first centres and samples.

    Returns:
        [N] the cluster of each row, 0 to K - 1; clusters with near numbers are alike.

    >>> points = torch.tensor([[1.0, 0.1], [-1, 0.1], [1, 0.2], [-1, 0.2], [1, 0.3], [-1, 0.3]])
    >>> cluster = balanced_clusters(points, size=3, seed=0)
    >>> bool(cluster[0] == cluster[2] == cluster[4] != cluster[1])
    True
    """
    rows = torch.as_tensor(vectors).detach().to(torch.float32).contiguous()
    if rows.device.type not in ("cpu", "cuda"):
        rows = rows.cpu()  # the only two devices with sampled products
    if rows.ndim != 2:
        raise DataError(f"vectors must be a matrix [N, d], not {tuple(rows.shape)}")
    if size < 1:
        raise SettingError(f"the size of a cluster must be at least 1, not {size}")
    if len(rows) == 0:
        return np.empty(0, dtype=np.int64)
    lengths = torch.linalg.vector_norm(rows, dim=1)
    if not bool(torch.isfinite(lengths).all()):
        raise DataError("a vector to be clustered holds NaN or infinity")
    tree = _Tree(rows, torch.where(lengths > 0, 1 / lengths, 0.0), -(-len(rows) // size), seed)
    with progress("clustering", total=tree.depth, unit="levels") as step:
        for level in range(tree.depth):
            tree.split(level)
            step(1)
    return tree.node


class _Tree:
    """The clusters so far: row i is in cluster c = node[i], which will become final clusters first[c] to first[c + 1].

    Products and sums run on the device of the vectors, over the vectors where they lie;
    bookkeeping is numpy. Rows are listed in rising order, beside them the number of
    their group: a cluster that is being cut.
    """

    def __init__(self, vectors: Tensor, scale: Tensor, leaves: int, seed: int) -> None:
        self.vectors, self.scale, self.seed = vectors, scale, seed
        self.depth = (leaves - 1).bit_length()
        self.bounds = np.arange(leaves + 1) * len(vectors) // leaves  # rows before each final cluster
        self.first = np.array([0, leaves])
        self.node = np.zeros(len(vectors), dtype=np.int64)

    def split(self, level: int) -> None:
        """Cut in two every cluster that is not final yet."""
        leaves = np.diff(self.first)
        cut = leaves > 1
        start, middle, stop = self.first[:-1][cut], self.first[:-1][cut] + (leaves[cut] + 1) // 2, self.first[1:][cut]
        sizes, left = self.bounds[stop] - self.bounds[start], self.bounds[middle] - self.bounds[start]

        rows = np.flatnonzero(cut[self.node])
        group = (np.cumsum(cut) - 1)[self.node[rows]]
        axes = self._axes(rows, group, sizes, left, generator(self.seed, "clusters", level))
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        right = rows[self._sort(rows, group, axes)][rank >= np.repeat(left, sizes)]
        self.node += (np.cumsum(cut) - cut)[self.node]
        self.node[right] += 1
        self.first = np.sort(np.concatenate([self.first, middle]))

    def _axes(
        self,
        rows: NDArray[np.int64],
        group: NDArray[np.int64],
        sizes: NDArray[np.int64],
        left: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Tensor:
        """Return the difference of the two centres of each group [G, d]."""
        share = left / sizes
        if sizes.max() > _SAMPLE:
            drawn = rng.random(len(rows)) < (_SAMPLE / sizes)[group]
            rows, group = rows[drawn], group[drawn]
        counts = np.bincount(group, minlength=len(sizes))
        axes = self._random_axes(rows, group, counts, rng)
        live, best = np.arange(len(sizes)), np.full(len(sizes), -np.inf)
        for _ in range(_ROUNDS):
            order = self._sort(rows, group, axes[self._put(live)])
            middle = np.clip(np.rint(counts * share[live]).astype(np.int64), 1, counts - 1)
            starts = np.cumsum(counts) - counts
            sums = self._sums(rows[order], np.stack([starts, starts + middle], axis=1).ravel())
            axes[self._put(live)] = normalize(sums[0::2]) - normalize(sums[1::2])
            similarity = torch.linalg.vector_norm(sums, dim=1).view(-1, 2).sum(1).cpu().numpy() / counts
            going = similarity - best >= _LEAST_GAIN
            if not going.any():
                break
            keep = going[group]
            rows, group = rows[keep], (np.cumsum(going) - 1)[group[keep]]
            live, best, counts = live[going], similarity[going], counts[going]
        return axes

    def _random_axes(
        self, rows: NDArray[np.int64], group: NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator
    ) -> Tensor:
        """Return the difference of two random rows of each group [G, d]."""
        grouped = rows[np.argsort(group, kind="stable")]
        one = (rng.random(len(counts)) * counts).astype(np.int64)
        other = (one + 1 + (rng.random(len(counts)) * (counts - 1)).astype(np.int64)) % counts
        seeds = (self._put(grouped[np.cumsum(counts) - counts + place]) for place in (one, other))
        first, second = (self.vectors[seed] * self.scale[seed, None] for seed in seeds)
        return first - second

    def _sort(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: Tensor) -> NDArray[np.int64]:
        """Return the order of rows by group, then from most alike to the first centre to most alike to the second."""
        starts = np.zeros(len(self.vectors) + 1, dtype=np.int64)
        starts[rows + 1] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch calls its sparse tensors beta
            wanted = torch.sparse_csr_tensor(
                self._put(np.cumsum(starts)),
                self._put(group),
                torch.zeros(len(rows), device=self.vectors.device),
                size=(len(self.vectors), len(axes)),
                check_invariants=False,
            )
            products = torch.sparse.sampled_addmm(wanted, self.vectors, axes.T, beta=0.0).values()
        along = (products * self.scale[self._put(rows)]).cpu().numpy()  # difference of two cosines, at most 2
        return np.argsort(8.0 * group - along)

    def _sums(self, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> Tensor:
        """Return the sum of the unit vectors from each start to the next [S, d]."""
        which = self._put(rows)
        scale = self.scale[which]
        sums: Tensor = embedding_bag(which, self.vectors, self._put(starts), mode="sum", per_sample_weights=scale)
        return sums

    def _put(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.vectors.device)
