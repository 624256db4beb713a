"""Label graph from random walks over points and labels."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs._checks import as_graph, check_delta, check_least_one, row_numbers, stack, zero_one
from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["random_walk", "walk_targets"]

_HOPS = 1 << 19  # hops of a chunk of labels


def random_walk(
    targets: sparse.csr_matrix,
    *,
    length: int = 400,
    reset: float = 0.8,
    top: int | None = 10,
    head: int | None = 500,
    seed: int = 0,
) -> sparse.csr_matrix:
    """Count the labels that random walks from each label visit.

    One walk of ``length`` hops starts at each label. A hop goes from a label to one of its
    points and on to one of the labels of that point, each drawn uniformly; the label
    it ends at counts as one visit. With probability ``reset`` the next hop starts from the first
    label again, otherwise from where the walk is. So labels that never share a point can
    become neighbours (ECLARE: Mittal et al., WWW 2021, section 4; the defaults are those of
    its code). Soft targets count as 1.

    Labels with more than ``head`` points say little about their neighbours. They are removed
    from the targets before the walks: no walk starts from, ends at or passes through one.
    The row of such a label, like that of a label without points, holds only itself, with
    ``length`` visits. The diagonal of every other row is at least 1.

    The random numbers for label j depend on ``seed`` and j only, so the result is the same on
    any machine and for any number of threads.

    Args:
        targets: Y [N, L], csr, values in (0, 1].
        length: hops from each label.
        reset: probability to go back to the first label after a hop, in [0, 1].
        top: largest number of neighbours per row, including the label itself; ties go to the
            lower id. None keeps all.
        head: labels with more points than this are left out; None leaves out none.
        seed: seed of all hops.

    Returns:
        [L, L] float32 visits, columns sorted; row j holds those of the walk from label j.
        :func:`walk_targets` turns them into targets, :func:`normalise` into weights of a convolution.

    >>> Y = sparse.csr_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    >>> visits = random_walk(Y, length=100, seed=0)
    >>> visits.sum(axis=1).ravel().tolist()
    [[100.0, 100.0, 100.0, 100.0]]
    >>> bool(visits[0, 2] > 0), int(visits[0, 3]), int(visits[3, 3])
    (True, 0, 100)
    """
    from megalabel.graphs._walk import walk

    _check(length, reset, top, head, seed)
    ones = _without_head(zero_one(targets), head)
    points = ones.T.tocsr()
    labels, chunk = ones.shape[1], max(1, _HOPS // length)
    width = min(labels, length + 1, labels if top is None else top)
    tables = ones.indices, ones.indptr, points.indices, points.indptr

    def rows(first: int) -> sparse.csr_matrix:
        last = min(first + chunk, labels)
        columns, visits = np.empty((last - first, width), np.int32), np.empty((last - first, width), np.float32)
        sizes = walk(first, last, *tables, length, reset, width, seed % 2**63, columns, visits)
        used = np.arange(width) < sizes[:, None]
        return sparse.csr_matrix(
            (visits[used], columns[used], np.r_[0, np.cumsum(sizes)]), shape=(last - first, labels)
        )

    parts = []
    with progress("walking", total=labels, unit="labels") as step, ThreadPoolExecutor(_threads()) as pool:
        for part in pool.map(rows, range(0, labels, chunk)):
            parts.append(part)
            step(part.shape[0])
    return stack(parts)


def _threads() -> int:
    """Return how many chunks are walked at once: the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(length: int, reset: float, top: int | None, head: int | None, seed: int) -> None:
    check_least_one("length", length)
    check_least_one("top", top)
    check_least_one("head", head)
    if not 0.0 <= reset <= 1.0:
        raise SettingError(f"reset must be a probability in [0, 1], not {reset}")
    if seed < 0:
        raise SettingError(f"the seed must be at least 0, not {seed}")


def _without_head(ones: sparse.csr_matrix, head: int | None) -> sparse.csr_matrix:
    """Return the targets without the cells of labels of more than ``head`` points."""
    if head is None:
        return ones
    stays = (np.bincount(ones.indices, minlength=ones.shape[1]) <= head)[ones.indices]
    indptr = np.r_[0, np.cumsum(stays)][ones.indptr]
    return sparse.csr_matrix((ones.data[stays], ones.indices[stays], indptr), shape=ones.shape)


def walk_targets(visits: sparse.csr_matrix, delta: float = 0.1) -> sparse.csr_matrix:
    """Turn visit counts into the targets of label texts, as :func:`cooccurrence` gives them from counts.

    Row j is divided by its own diagonal, the visits of label j to itself, and clipped to 1:
    c_ij = min(1, V_ji / V_jj), kept when c_ij > delta. The diagonal is always 1. The Gandalf
    thesis uses walks in place of counts (Kharbanda, Table 1.7) without saying how visits
    become targets; with this choice both graphs have the same meaning.

    Args:
        visits: [L, L] counts, from :func:`random_walk`; a label that never visits itself keeps only itself.
        delta: targets must be above it, in [0, 1).

    Returns:
        [L, L] float32 in (delta, 1]; row j holds the targets of label text j.

    >>> visits = sparse.csr_matrix([[8.0, 2, 0], [9, 6, 1], [0, 0, 10]])
    >>> walk_targets(visits, delta=0.2).toarray().tolist()
    [[1.0, 0.25, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_delta(delta)
    graph = as_graph(visits)
    diagonal: NDArray[np.float64] = graph.diagonal().astype(np.float64)
    rows, cols = row_numbers(graph), graph.indices
    off = rows != cols
    values = np.minimum(graph.data[off] / np.where(diagonal > 0, diagonal, np.inf)[rows[off]], 1.0)
    keep = values > delta
    every = np.arange(len(diagonal))
    cells = (np.r_[rows[off][keep], every], np.r_[cols[off][keep], every])
    return sparse.csr_matrix((np.r_[values[keep], np.ones(len(diagonal))].astype(np.float32), cells), shape=graph.shape)
