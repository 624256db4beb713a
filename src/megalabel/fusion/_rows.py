"""Rows of candidates: what is asked of them, and what the parts of fusion look up in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "best_first",
    "cells_of",
    "check_candidates",
    "known_scores",
    "labels_of",
    "live_cells",
    "logs_of",
    "numbers",
]


def check_candidates(candidates: NDArray[np.integer[Any]], labels: int) -> NDArray[np.int64]:
    """Return candidates as int64 [Q, C]; ids outside -1 to labels - 1 and repeats in a row are refused."""
    ids = np.asarray(candidates)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise DataError(f"candidates must be whole numbers [queries, C], not {ids.dtype} {list(ids.shape)}")
    ids = ids.astype(np.int64)
    if ids.size and not (ids.min() >= -1 and ids.max() < labels):
        raise DataError(f"a candidate lies outside 0 to {labels - 1}", remedy="use label ids, and -1 to fill up a row")
    ordered = np.sort(ids, axis=1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        raise DataError(
            f"the candidates of row {np.argmax(twice)} hold a label twice", remedy="put them together with union"
        )
    return ids


def logs_of(values: NDArray[Any], candidates: NDArray[np.int64], name: str, *, plus: float) -> NDArray[np.float64]:
    """Return log(plus + value) [Q, C] of each candidate's own of the values [L]; only those looked at are checked."""
    found = np.asarray(values)[candidates].astype(np.float64) + plus
    if not (np.isfinite(found) & (found >= plus) & (found > 0)).all():
        least = "at least 0" if plus else "above 0"
        raise DataError(f"{name} must be finite numbers, {least}, one per label")
    logs: NDArray[np.float64] = np.log(found)
    return logs


def labels_of(counts: NDArray[Any]) -> int:
    """Return the number of labels L that counts [L] speak of."""
    if np.ndim(counts) != 1 or len(counts) == 0:
        raise DataError(f"label counts must be one number per label, not {list(np.shape(counts))}")
    return len(counts)


def cells_of(matrix: sparse.csr_matrix, candidates: NDArray[np.int64], labels: int, name: str) -> NDArray[np.float64]:
    """Return the values [Q, C] of a sparse matrix [Q, L] at the candidates; padding gives 0."""
    shape = (len(candidates), labels)
    if not sparse.issparse(matrix) or matrix.shape != shape:
        given = f"{type(matrix).__name__} {list(getattr(matrix, 'shape', ()))}"
        raise DataError(f"{name} must be a sparse matrix {list(shape)}, not {given}")
    if candidates.size == 0:
        return np.zeros(candidates.shape)
    rows = np.broadcast_to(np.arange(len(candidates))[:, None], candidates.shape)
    found = sparse.csr_matrix(matrix)[rows.ravel(), np.maximum(candidates, 0).ravel()]
    values = np.asarray(found, dtype=np.float64).reshape(candidates.shape)
    return np.where(candidates >= 0, values, 0.0)


def live_cells(candidates: NDArray[np.int64], exclude: sparse.csr_matrix | None, labels: int) -> NDArray[np.bool_]:
    """Return where there is a candidate that takes part."""
    live = candidates >= 0
    return live if exclude is None else live & (cells_of(exclude, candidates, labels, "exclude") == 0)


def known_scores(
    scores: NDArray[np.floating[Any]], live: NDArray[np.bool_], name: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return scores [Q, C] in float64 and where one is known: live, and neither NaN nor -inf."""
    found = np.asarray(scores)
    if found.shape != live.shape or found.dtype.kind not in "fiu":
        raise DataError(f"scores of {name} must be numbers {list(live.shape)}, not {found.dtype} {list(found.shape)}")
    known = live & ~np.isnan(found) & (found != -np.inf)
    if np.isinf(found[known]).any():
        raise DataError(f"a score of {name} is infinite")
    return found.astype(np.float64), known


def best_first(scores: NDArray[np.float64], candidates: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the places [Q, at most k] of the best scores in each row, equal ones by rising label id."""
    return np.lexsort((candidates, -scores), axis=1)[:, :k]


def numbers(value: object, name: str, length: int | None = None) -> tuple[float, ...]:
    """Return a list of finite numbers read from JSON, or say what is wrong with it."""
    right = isinstance(value, list | tuple) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and np.isfinite(one) for one in value
    )
    if not right or (length is not None and len(value) != length):  # type: ignore[arg-type]
        raise DataError(f"{name} must be {'' if length is None else f'{length} '}finite numbers, not {value!r}")
    return tuple(float(one) for one in value)  # type: ignore[attr-defined]
