"""Positives: which relevant labels of a row enter the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from pydantic import PositiveInt

from megalabel.batching._cells import Cells, draw_one_each, gather
from megalabel.errors import SettingError
from megalabel.settings import Settings, one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["All", "One", "Picker", "PositiveSettings", "Some", "SomePositives"]


class Picker(Protocol):
    """Chooses among the relevant cells of each row."""

    def choose(self, cells: Cells, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the indices of the chosen cells, ascending; at least one of every non-empty row."""
        ...


class _Picks:
    """Mixin with :meth:`pick`, from rows to pairs of row and label."""

    def pick(
        self: Picker, targets: csr_matrix, rows: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the position in ``rows`` and the label id of each chosen positive, row by row."""
        cells = gather(targets, np.asarray(rows, dtype=np.int64))
        chosen = self.choose(cells, rng)
        return cells.rows[chosen], cells.labels[chosen]


@dataclass(frozen=True)
class Some(_Picks):
    """Pick at most ``beta`` positives of each row, with probability proportional to relevance.

    Pick-some-labels, Kharbanda et al. 2024, arXiv 2405.03714, section on PSL, beta = 3. Without
    replacement a row gives ``min(beta, |P_i|)`` distinct labels: each cell draws E / value with E
    exponential, and the beta smallest are picked. With replacement, as in the published
    code, a label may be drawn twice, and the row then gives fewer.

    >>> from scipy.sparse import csr_matrix
    >>> targets = csr_matrix(np.array([[1.0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]))
    >>> rows, labels = Some(2).pick(targets, np.array([0, 1, 2]), np.random.default_rng(0))
    >>> rows.tolist(), len(labels)
    ([0, 0, 1], 3)
    """

    beta: int
    replacement: bool = False

    def __post_init__(self) -> None:
        if self.beta < 1:
            raise SettingError(f"beta must be at least 1, not {self.beta}", remedy="give the positives per row")

    def choose(self, cells: Cells, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the indices of the chosen cells, ascending."""
        counts = np.diff(cells.starts)
        if self.replacement:
            full = np.flatnonzero(counts)
            starts = np.append(cells.starts[full], cells.starts[-1])
            return np.unique(draw_one_each(starts, cells.values, self.beta, rng))
        rich = counts > self.beta
        crowded = rich[cells.rows]
        cell = np.flatnonzero(crowded)
        keys = rng.standard_exponential(len(cell)) / cells.values[cell]
        order = np.argsort(cells.rows[cell] + np.minimum(keys / (1 + keys), 1 - 1e-9))  # by row, then by key
        before = np.repeat(np.cumsum(counts[rich]) - counts[rich], counts[rich])
        best = cell[order[np.arange(len(cell)) - before < self.beta]]
        return np.sort(np.concatenate([np.flatnonzero(~crowded), best]))


@dataclass(frozen=True)
class One(_Picks):
    """Pick one positive of each row, with probability proportional to relevance.

    Pick-one-label of Menon et al. 2019, and the way DEXML (Gupta et al. 2024, arXiv
    2310.10636) and NGAME (Dahiya et al., WSDM 2023) draw. Equals ``Some(1)``.

    >>> from scipy.sparse import csr_matrix
    >>> targets = csr_matrix(np.array([[1.0, 1, 1, 1], [0, 0, 1, 0]]))
    >>> One().pick(targets, np.array([0, 1]), np.random.default_rng(0))[0].tolist()
    [0, 1]
    """

    def choose(self, cells: Cells, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the indices of the chosen cells, ascending."""
        return Some(1).choose(cells, rng)


@dataclass(frozen=True)
class All(_Picks):
    """Pick every positive of each row."""

    def choose(self, cells: Cells, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the indices of all cells."""
        return np.arange(len(cells.labels))


class AnyPositives(Settings):
    """Which positives of a query enter the step."""

    pick: str

    def picker(self) -> Picker:
        """Return the object that picks them."""
        raise NotImplementedError

    def expected(self, per_query: float) -> float:
        """Return how many are picked of a query that has ``per_query`` positives."""
        raise NotImplementedError


class OnePositive(AnyPositives):
    """One, drawn again in each step."""

    pick: Literal["one"] = "one"

    def picker(self) -> Picker:
        """Return the object that picks them."""
        return One()

    def expected(self, per_query: float) -> float:
        """Return 1."""
        return 1.0


class SomePositives(AnyPositives):
    """At most ``count``, drawn again in each step."""

    pick: Literal["some"] = "some"
    count: PositiveInt = 3
    replacement: bool = False

    def picker(self) -> Picker:
        """Return the object that picks them."""
        return Some(self.count, replacement=self.replacement)

    def expected(self, per_query: float) -> float:
        """Return the smaller of the two numbers; an upper bound if labels are drawn with replacement."""
        return min(self.count, per_query)


class AllPositives(AnyPositives):
    """All of them."""

    pick: Literal["all"] = "all"

    def picker(self) -> Picker:
        """Return the object that picks them."""
        return All()

    def expected(self, per_query: float) -> float:
        """Return all."""
        return per_query


if TYPE_CHECKING:
    PositiveSettings = AnyPositives
else:
    PositiveSettings = one_of(
        lambda: {"one": OnePositive, "some": SomePositives, "all": AllPositives}, key="pick", default="some"
    )
