"""Label graph from random walks over points and labels."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs._checks import check_least_one, stack, zero_one
from megalabel.graphs._top import keep_top
from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["random_walk"]

_HOPS = 1 << 17  # hops of a chunk of labels, about 5 MB


def random_walk(
    targets: sparse.csr_matrix,
    *,
    length: int = 400,
    reset: float = 0.8,
    top: int | None = 10,
    head: int | None = 500,
    seed: int = 0,
) -> sparse.csr_matrix:
    """Count the labels that random walks from each label come by.

    One walk of ``length`` hops starts at each label. A hop goes from a label to one of its
    points and on to one of the labels of that point, each drawn with equal chance; the label
    it ends at counts as one visit. With chance ``reset`` the next hop starts from the first
    label again, otherwise from where the walk is. So labels that never share a point can
    become neighbours (ECLARE: Mittal et al., WWW 2021, section 4; the defaults are those of
    its code). Soft targets are taken as 1.

    Labels with more than ``head`` points say little about their neighbours. They are taken
    out of the targets before the walks: none starts from one, ends at one or goes through
    one. Such a label, like one without a point, stays at home: its row holds only itself,
    with ``length`` visits. The diagonal of every other row is at least 1.

    The numbers drawn for label j depend on ``seed``, j and ``length`` alone, so the result is
    the same on any machine and for any number of threads.

    Args:
        targets: Y [N, L], csr, values in (0, 1].
        length: hops from each label.
        reset: chance to go back to the first label after a hop, in [0, 1].
        top: at most this many neighbours per row, the label itself among them; of equal ones
            those of lower number. None keeps all.
        head: labels with more points than this are left out; None leaves out none.
        seed: decides all hops.

    Returns:
        [L, L] float32 visits, columns sorted; row j holds those of the walk from label j.
        :func:`walk_targets` makes targets of them, :func:`normalise` weights of a convolution.

    >>> Y = sparse.csr_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    >>> visits = random_walk(Y, length=100, seed=0)
    >>> visits.sum(axis=1).ravel().tolist()
    [[100.0, 100.0, 100.0, 100.0]]
    >>> bool(visits[0, 2] > 0), int(visits[0, 3]), int(visits[3, 3])
    (True, 0, 100)
    """
    _check(length, reset, top, head, seed)
    ones = _without_head(zero_one(targets), head)
    walker = _Walker(ones, length, reset)
    labels, chunk = ones.shape[1], max(1, _HOPS // length)

    def walk(number: int) -> sparse.csr_matrix:
        own = np.arange(number * chunk, min((number + 1) * chunk, labels))
        choice, resets = (np.random.SeedSequence(seed, spawn_key=(number, which)) for which in range(2))
        visits = walker.rows(own, np.random.default_rng(choice), np.random.default_rng(resets))
        return visits if top is None else keep_top(visits, top, own)

    parts = []
    with progress("walking", total=labels, unit="labels") as step, ThreadPoolExecutor(_threads()) as pool:
        for part in pool.map(walk, range(-(-labels // chunk))):
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
        raise SettingError(f"reset is a chance in [0, 1], not {reset}")
    if seed < 0:
        raise SettingError(f"the seed must not be negative, {seed} is")


def _without_head(ones: sparse.csr_matrix, head: int | None) -> sparse.csr_matrix:
    """Return the targets without the cells of labels of more than ``head`` points."""
    if head is None:
        return ones
    stays = (np.bincount(ones.indices, minlength=ones.shape[1]) <= head)[ones.indices]
    indptr = np.r_[0, np.cumsum(stays)][ones.indptr]
    return sparse.csr_matrix((ones.data[stays], ones.indices[stays], indptr), shape=ones.shape)


class _Walker:
    """Walks from many labels at once.

    Hops that start afresh do not wait for the hop before them, so all of them are done
    together; then those that go on from one of these, and so on. With reset 0.8 a dozen
    rounds do for any length.
    """

    def __init__(self, ones: sparse.csr_matrix, length: int, reset: float) -> None:
        points = ones.T.tocsr()
        self.length, self.reset = length, reset
        self.labels, self.label_start, self.label_count = _tables(ones)
        self.points, self.point_start, self.point_count = _tables(points)

    def rows(
        self, own: NDArray[np.int64], choice: np.random.Generator, resets: np.random.Generator
    ) -> sparse.csr_matrix:
        """Return rows ``own`` of the result; numbers are drawn for every one of them, used or not."""
        live = self.point_count[own] > 0
        shape = (len(own), self.length)
        draws, again = choice.random(shape), resets.random(shape, dtype=np.float32) < self.reset
        rows, cols, counts = _count(self.walk(own[live], draws[live], again[live]))
        rows = np.flatnonzero(live)[rows]
        alone = np.ones(len(own), dtype=bool)  # rows without their own label so far
        alone[rows[cols == own[rows]]] = False
        loops = np.where(live, 1, self.length)[alone]
        cells = (np.r_[rows, np.flatnonzero(alone)], np.r_[cols, own[alone]])
        shape = (len(own), len(self.point_count))
        return sparse.csr_matrix((np.r_[counts, loops].astype(np.float32), cells), shape=shape)

    def walk(self, own: NDArray[np.int64], draws: NDArray[np.float64], again: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the visits [n, length] of walks from the labels ``own``, all of which have a point.

        ``again`` [n, length] says which hops start from the first label; the first of a walk does anyway.
        """
        on = np.zeros(draws.size + 1, dtype=bool)  # hops that go on from where the last one ended
        np.logical_not(again.reshape(-1), out=on[:-1])
        on[:: self.length] = False
        visits = self._hop(self.point_start[own, None], self.point_count[own, None], draws)
        flat, draws = visits.reshape(-1), draws.reshape(-1)
        live = np.flatnonzero(on[1:] > on[:-1]) + 1
        while len(live):
            label = flat.take(live - 1)
            flat[live] = self._hop(self.point_start.take(label), self.point_count.take(label), draws.take(live))
            live += 1
            live = live[on.take(live)]
        return visits

    def _hop(
        self, start: NDArray[np.integer], count: NDArray[np.integer], draws: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return where hops end that choose among ``count`` points from place ``start`` on.

        The whole part of draw * count is the point; what is left over is as good as new and chooses the label.
        """
        left = draws * count
        which = left.astype(np.int64)
        left -= which
        which += start
        point = self.points.take(which)
        left *= self.label_count.take(point)
        which = left.astype(np.int64)
        which += self.label_start.take(point)
        return self.labels.take(which)


def _tables(matrix: sparse.csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return columns, first cell and number of cells of each row; indices of the machine's own size are fastest."""
    indptr = matrix.indptr.astype(np.int64)
    return matrix.indices.astype(np.int64), indptr[:-1], np.diff(indptr)


def _count(visits: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return row, label and number of the visits [n, length] of each row."""
    visits.sort(axis=1)
    first = np.ones(visits.shape, dtype=bool)
    np.not_equal(visits[:, 1:], visits[:, :-1], out=first[:, 1:])
    where = np.flatnonzero(first)
    return where // visits.shape[1], visits.reshape(-1)[where], np.diff(where, append=visits.size).astype(np.float32)
