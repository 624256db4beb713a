"""Shared by all searches: checks of the arguments, exact scores of candidates, and the order of results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["best_first", "check_ids", "check_labels", "check_search", "exact_scores", "largest_norm"]

_GATHER = 1 << 22  # vector components re-scored at a time
_ROWS = 65_536  # vectors measured at a time


def check_labels(vectors: Tensor) -> None:
    """Raise a DataError for invalid label vectors [L, d]."""
    if vectors.ndim != 2 or vectors.shape[0] == 0:
        raise DataError(f"label vectors must be a matrix with at least one row, not {tuple(vectors.shape)}")


def check_search(shape: tuple[int, int], vectors: Tensor, k: int, exclude: csr_matrix | None) -> None:
    """Raise an error for an invalid search of an index over ``shape`` [L, d] labels."""
    if vectors.ndim != 2 or vectors.shape[1] != shape[1]:
        raise DataError(f"query vectors must be [Q, {shape[1]}] like the labels, not {tuple(vectors.shape)}")
    if k < 1:
        raise SettingError(f"k must be at least 1, not {k}")
    if exclude is not None and exclude.shape != (vectors.shape[0], shape[0]):
        raise DataError(f"exclude must be {len(vectors)} x {shape[0]}, not {exclude.shape[0]} x {exclude.shape[1]}")
    if not math.isfinite(vectors.sum(dtype=torch.float64).item()):  # float64 cannot overflow here
        raise DataError("a query vector holds NaN or infinity")


def check_ids(ids: Sequence[int] | NDArray[np.integer[Any]], labels: int) -> NDArray[np.int64]:
    """Return label ids as an array, or raise a DataError for an invalid one."""
    numbers = np.asarray(ids, dtype=np.int64).reshape(-1)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < labels):
        raise DataError(f"ids to remove must lie in 0 to {labels - 1:,}")
    return numbers


def exact_scores(labels: Tensor, queries: Tensor, ids: Tensor) -> Tensor:
    """Score [Q, n] candidate ids one by one in float64, rounded to float32; compiled loops on a CPU."""
    out = torch.empty(ids.shape, device=ids.device)
    rows = max(1, _GATHER // max(1, ids.shape[1] * labels.shape[1]))
    for start in range(0, len(ids), rows):
        part = slice(start, start + rows)
        chosen = labels.index_select(0, ids[part].reshape(-1)).view(*ids[part].shape, labels.shape[1])
        wide = chosen.to(torch.float64)
        out[part] = wide.mul_(queries[part].to(torch.float64).unsqueeze(1)).sum(dim=2).to(torch.float32)
    return out


def best_first(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sort by score, best first, then by id, and cut to k."""
    ids, by_id = ids.sort(dim=1)
    scores, by_score = scores.gather(1, by_id).sort(dim=1, descending=True, stable=True)
    return scores[:, :k], ids.gather(1, by_score)[:, :k]


def largest_norm(vectors: Tensor) -> Tensor:
    """Return the length of the longest row, 0 if there are no rows."""
    if 0 < len(vectors) <= _ROWS:
        lengths: Tensor = torch.linalg.vector_norm(vectors.detach().to(torch.float32), dim=1)
        return lengths.max()
    parts = [largest_norm(part) for part in torch.split(vectors, _ROWS) if len(part)]
    return torch.stack(parts).max() if parts else torch.zeros(())
