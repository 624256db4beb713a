"""What every search shares: the check of what is asked, exact scores of candidates, and the order of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["best_first", "check_labels", "check_search", "exact_scores", "largest_norm", "rough_scores"]

_GATHER = {"cpu": 1 << 17}  # vector components re-scored at a time: what a cache holds
_MORE = 1 << 22  # on other devices
_ROWS = 65_536  # vectors measured at a time


def check_labels(vectors: Tensor) -> None:
    """Raise a DataError for what cannot be label vectors [L, d]."""
    if vectors.ndim != 2 or vectors.shape[0] == 0:
        raise DataError(f"label vectors must be a matrix with at least one row, not {tuple(vectors.shape)}")


def check_search(shape: tuple[int, int], vectors: Tensor, k: int, exclude: csr_matrix | None) -> None:
    """Raise an error for what cannot be asked of an index over ``shape`` [L, d] labels."""
    if vectors.ndim != 2 or vectors.shape[1] != shape[1]:
        raise DataError(f"query vectors must be [Q, {shape[1]}] like the labels, not {tuple(vectors.shape)}")
    if k < 1:
        raise SettingError(f"k must be at least 1, not {k}")
    if exclude is not None and exclude.shape != (len(vectors), shape[0]):
        raise DataError(f"exclude must be {len(vectors)} x {shape[0]}, not {exclude.shape[0]} x {exclude.shape[1]}")
    if not torch.isfinite(largest_norm(vectors)):
        raise DataError("a query vector holds NaN or infinity")


def exact_scores(labels: Tensor, queries: Tensor, ids: Tensor) -> Tensor:
    """Score [Q, n] candidate ids one by one in float64, rounded to float32."""
    out = torch.empty(ids.shape, device=ids.device)
    for part, chosen in _gathered(labels, ids):
        wide = chosen.to(torch.float64)
        out[part] = wide.mul_(queries[part].to(torch.float64).unsqueeze(1)).sum(dim=2).to(torch.float32)
    return out


def rough_scores(labels: Tensor, queries: Tensor, ids: Tensor) -> Tensor:
    """Score [Q, n] candidate ids by float32 products: quicker, but the last bits depend on what is scored together."""
    out = torch.empty(ids.shape, device=ids.device)
    for part, chosen in _gathered(labels, ids):
        out[part] = torch.bmm(chosen, queries[part].unsqueeze(2)).squeeze(2)
    return out


def _gathered(labels: Tensor, ids: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield the vectors [rows, n, d] of some rows of candidates at a time."""
    dim = labels.shape[1]
    rows = max(1, _GATHER.get(ids.device.type, _MORE) // max(1, ids.shape[1] * dim))
    for start in range(0, len(ids), rows):
        part = slice(start, start + rows)
        some = ids[part]
        yield part, labels.index_select(0, some.reshape(-1)).view(*some.shape, dim)


def best_first(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sort by score, best first, then by id, and cut to k."""
    ids, by_id = ids.sort(dim=1)
    scores, by_score = scores.gather(1, by_id).sort(dim=1, descending=True, stable=True)
    return scores[:, :k], ids.gather(1, by_score)[:, :k]


def largest_norm(vectors: Tensor) -> Tensor:
    """Return the length of the longest row, 0 where there is none."""
    if 0 < len(vectors) <= _ROWS:
        lengths: Tensor = torch.linalg.vector_norm(vectors.detach().to(torch.float32), dim=1)
        return lengths.max()
    parts = [largest_norm(part) for part in torch.split(vectors, _ROWS) if len(part)]
    return torch.stack(parts).max() if parts else torch.zeros(())
