"""The centres of inverted lists."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from megalabel.graphs.partition import partition
from megalabel.progress import progress

__all__ = ["PER_LIST", "ROUNDS", "assign", "centres_of"]

PER_LIST = 64  # labels used per centre
ROUNDS = 4  # of k-means, after the balanced start
_BLOCK = 16_384  # labels compared with all centres at a time


def centres_of(vectors: Tensor, nlist: int, *, seed: int) -> Tensor:
    """Return the centres [nlist, d] of unit length of k-means on vectors of equal length.

    It starts from balanced clusters, so that lists have similar sizes: the work of a search is
    proportional to the labels in the lists it visits. If there are more than 64 labels per
    list, a random sample of 64 per list is used.

    >>> centres_of(torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]), 2, seed=0).sort(dim=0).values
    tensor([[0., 0.],
            [1., 1.]])
    """
    if len(vectors) > PER_LIST * nlist:
        chosen = np.random.default_rng(seed).choice(len(vectors), PER_LIST * nlist, replace=False)
        vectors = vectors[torch.from_numpy(np.sort(chosen))]
    cluster = torch.from_numpy(partition(vectors.numpy(), clusters=nlist, seed=seed))
    centres = _means(vectors, cluster, vectors.new_zeros((nlist, vectors.shape[1])))
    with progress("placing centres", total=ROUNDS, unit="rounds") as step:
        for _ in range(ROUNDS):
            centres = _means(vectors, assign(vectors, centres), centres)
            step(1)
    return centres


def assign(vectors: Tensor, centres: Tensor) -> Tensor:
    """Return the centre [n] with the largest product for each vector."""
    parts = [torch.mm(part, centres.T).argmax(dim=1) for part in torch.split(vectors, _BLOCK)]
    return torch.cat(parts)


def _means(vectors: Tensor, cluster: Tensor, before: Tensor) -> Tensor:
    """Return the means, scaled to unit length; a centre without vectors does not change."""
    sums = torch.zeros_like(before).index_add_(0, cluster, vectors)
    empty = torch.bincount(cluster, minlength=len(before)) == 0
    return torch.where(empty.unsqueeze(1), before, normalize(sums, dim=1))
