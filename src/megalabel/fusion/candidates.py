"""Candidates: the union of what the heads propose, and lookups of scores, targets and counts at candidate cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.types import TopK

__all__ = [
    "best_first",
    "check_candidates",
    "check_scores",
    "finite_numbers",
    "label_count",
    "live_cells",
    "log_values",
    "present_scores",
    "then_others",
    "union",
    "values_at",
]


def union(*proposals: TopK, k: int | None = None) -> NDArray[np.int64]:
    """Return the distinct labels that the heads propose for each query.

    Args:
        proposals: one ranking per head, over the same Q queries; widths may differ.
        k: use only the first k of each ranking; all by default.

    Returns:
        [Q, C] label ids, ascending in each row, padded with -1; C is the largest number of
        distinct labels in a row.

    >>> from megalabel.types import TopK
    >>> text = TopK(np.array([[7, 2], [5, -1]]), np.zeros((2, 2), dtype=np.float32))
    >>> memory = TopK(np.array([[2, 9], [5, -1]]), np.zeros((2, 2), dtype=np.float32))
    >>> union(text, memory).tolist()
    [[2, 7, 9], [5, -1, -1]]
    >>> union(text, memory, k=1).tolist()
    [[2, 7], [5, -1]]
    """
    if not proposals:
        raise SettingError("no ranking to take candidates from", remedy="pass the ranking of at least one head")
    if k is not None and k < 1:
        raise SettingError(f"k must be at least 1, not {k}")
    rows = [len(ranking.ids) for ranking in proposals]
    if len(set(rows)) > 1:
        raise DataError(f"the heads rank {rows} queries", remedy="pass rankings of the same queries")
    padding = np.iinfo(np.int64).max  # sorts behind every label
    ids = np.concatenate([np.asarray(ranking.ids, dtype=np.int64)[:, :k] for ranking in proposals], axis=1)
    ids = np.sort(np.where(ids < 0, padding, ids), axis=1)
    ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = padding
    ids.sort(axis=1)
    width = int((ids != padding).sum(axis=1).max(initial=0))
    return np.where(ids == padding, -1, ids)[:, :width]


def then_others(top: TopK, others: TopK) -> TopK:
    """Return the ranking ``top`` [Q, k] with its empty places filled by labels of ``others``, in their order.

    A label that ``top`` has is not repeated, and no score is above that of the label before it.

    >>> from megalabel.types import TopK
    >>> top = TopK(np.array([[7, 2, -1, -1]]), np.array([[0.9, 0.5, -np.inf, -np.inf]], dtype=np.float32))
    >>> others = TopK(np.array([[7, 4, 2, 3]]), np.array([[0.9, 0.75, 0.5, 0.25]], dtype=np.float32))
    >>> both = then_others(top, others)
    >>> both.ids.tolist(), both.scores.tolist()
    ([[7, 2, 4, 3]], [[0.8999999761581421, 0.5, 0.5, 0.25]])
    """
    ids, scores = top.ids.copy(), top.scores.copy()
    for row, (labels, values) in enumerate(zip(others.ids, others.scores, strict=True)):
        place = int(np.count_nonzero(ids[row] >= 0))
        fresh = np.flatnonzero((labels >= 0) & ~np.isin(labels, ids[row]))[: ids.shape[1] - place]
        ids[row, place : place + len(fresh)] = labels[fresh]
        scores[row, place : place + len(fresh)] = values[fresh]
    return type(top)(ids, np.minimum.accumulate(scores, axis=1))


def check_candidates(candidates: NDArray[np.integer[Any]], labels: int) -> NDArray[np.int64]:
    """Return candidates as int64 [Q, C]; refuse ids outside -1 to labels - 1 and duplicates within a row."""
    ids = np.asarray(candidates)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise DataError(f"candidates must be integers [queries, C], not {ids.dtype} {list(ids.shape)}")
    ids = ids.astype(np.int64)
    if ids.size and not (ids.min() >= -1 and ids.max() < labels):
        raise DataError(f"candidate outside 0 to {labels - 1}", remedy="use label ids, and -1 as padding")
    ordered = np.sort(ids, axis=1)
    duplicate = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if duplicate.any():
        raise DataError(
            f"duplicate label among the candidates of row {np.argmax(duplicate)}", remedy="combine rankings with union"
        )
    return ids


def label_count(counts: NDArray[Any]) -> int:
    """Return the number of labels L of counts [L]."""
    if np.ndim(counts) != 1 or len(counts) == 0:
        raise DataError(f"label counts must be one number per label, not {list(np.shape(counts))}")
    return len(counts)


def log_values(values: NDArray[Any], candidates: NDArray[np.int64], name: str, *, plus: float) -> NDArray[np.float64]:
    """Return log(plus + values[candidates]) [Q, C] for values [L]; only the values used are checked."""
    shifted = np.asarray(values)[candidates].astype(np.float64) + plus
    if not (np.isfinite(shifted) & (shifted >= plus) & (shifted > 0)).all():
        bound = "at least 0" if plus else "above 0"
        raise DataError(f"{name} must be finite numbers, {bound}, one per label")
    logs: NDArray[np.float64] = np.log(shifted)
    return logs


def values_at(matrix: sparse.csr_matrix, candidates: NDArray[np.int64], labels: int, name: str) -> NDArray[np.float64]:
    """Return the values [Q, C] of a sparse matrix [Q, L] at the candidates; 0 for padding."""
    shape = (len(candidates), labels)
    if not sparse.issparse(matrix) or matrix.shape != shape:
        given = f"{type(matrix).__name__} {list(getattr(matrix, 'shape', ()))}"
        raise DataError(f"{name} must be a sparse matrix {list(shape)}, not {given}")
    if candidates.size == 0:
        return np.zeros(candidates.shape)
    rows = np.broadcast_to(np.arange(len(candidates))[:, None], candidates.shape)
    cells = sparse.csr_matrix(matrix)[rows.ravel(), np.maximum(candidates, 0).ravel()]
    values = np.asarray(cells, dtype=np.float64).reshape(candidates.shape)
    return np.where(candidates >= 0, values, 0.0)


def live_cells(candidates: NDArray[np.int64], exclude: sparse.csr_matrix | None, labels: int) -> NDArray[np.bool_]:
    """Return the mask [Q, C] of cells that hold a candidate and are not excluded."""
    live = candidates >= 0
    return live if exclude is None else live & (values_at(exclude, candidates, labels, "exclude") == 0)


def check_scores(scores: NDArray[np.floating[Any]], live: NDArray[np.bool_], name: str) -> NDArray[np.floating[Any]]:
    """Return scores as an array; raise a DataError unless they are numbers [Q, C]."""
    values = np.asarray(scores)
    if values.shape != live.shape or values.dtype.kind not in "fiu":
        raise DataError(f"scores of {name} must be numbers {list(live.shape)}, not {values.dtype} {list(values.shape)}")
    return values


def present_scores(
    scores: NDArray[np.floating[Any]], live: NDArray[np.bool_], name: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return scores [Q, C] as float64 and the mask of live cells whose score is neither NaN nor -inf."""
    values = check_scores(scores, live, name)
    present = live & ~np.isnan(values) & (values != -np.inf)
    if np.isinf(values[present]).any():
        raise DataError(f"infinite score of {name}")
    return values.astype(np.float64), present


def best_first(scores: NDArray[np.float64], candidates: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the columns [Q, at most k] of the best scores in each row; ties go to the lower label id."""
    return np.lexsort((candidates, -scores), axis=1)[:, :k]


def finite_numbers(value: object, name: str, length: int | None = None) -> tuple[float, ...]:
    """Return a list of finite numbers read from JSON; raise a DataError for anything else."""
    valid = isinstance(value, list | tuple) and all(
        isinstance(item, int | float) and not isinstance(item, bool) and np.isfinite(item) for item in value
    )
    if not valid or (length is not None and len(value) != length):  # type: ignore[arg-type]
        raise DataError(f"{name} must be {'' if length is None else f'{length} '}finite numbers, not {value!r}")
    return tuple(float(item) for item in value)  # type: ignore[attr-defined]
