"""Products of query vectors with some label vectors each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.index._threads import row_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["products"]


def products(labels: Tensor, queries: Tensor, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the scores [Q, C] of candidate labels, bit for bit those of an exact search; candidate -1 has -inf.

    A compiled loop reads the rows where they are, without copies.

    Args:
        labels: [L, d] on a CPU.
        queries: [Q, d].
        candidates: [Q, C] ids in -1 to L - 1.

    >>> products(torch.eye(3), torch.tensor([[0.5, 0.25, 0.0]]), np.array([[1, 0, -1]])).tolist()
    [[0.25, 0.5, -inf]]
    """
    from megalabel.index._kernels import multiply

    ids = np.ascontiguousarray(candidates, dtype=np.int64)
    scores = np.empty(ids.shape, dtype=np.float32)
    rows = queries.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()
    vectors = labels.detach().to(torch.float32).contiguous().numpy()
    with row_threads(len(ids)) as spread:
        spread(partial(multiply, vectors, rows, ids, scores), len(ids))
    return scores
