"""What heads hold and compute, in numbers: for the plan of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from megalabel.heads.dense import DenseSettings

__all__ = ["FLOAT", "HeadCost", "HeadWorkload", "Part", "dense_cost", "in_main_memory", "tensor"]

FLOAT = 4  # bytes
_HEAP = 32 << 20  # bytes; the C library keeps smaller blocks that are freed, larger ones go back to the system


@dataclass(frozen=True)
class Part:
    """One thing that takes memory."""

    name: str
    bytes: float
    how: str = ""  # the product it is
    host: bool = False  # in main memory even if the network is on a GPU
    pieces: float = 1  # blocks of equal size that it consists of

    @property
    def small(self) -> bool:
        """Whether the C library keeps its blocks after they are freed."""
        return self.bytes / max(1.0, self.pieces) < _HEAP


def tensor(name: str, rows: float, width: float, *, times: float = 1, host: bool = False, note: str = "") -> Part:
    """Return ``times`` float32 tensors [rows, width] as one part that shows its product.

    >>> tensor("label vectors", 1_000, 384, times=2).how
    '2 x 1,000 x 384 x 4 B'
    """
    count = f"{times:g} x " if times != 1 else ""
    how = f"{count}{rows:,.0f} x {width:,.0f} x {FLOAT} B{f', {note}' if note else ''}"
    return Part(name, times * rows * width * FLOAT, how, host, times)


def in_main_memory(name: str, count: float, each: float, *, pieces: float = 1) -> Part:
    """Return ``count`` things of ``each`` bytes that stay in main memory.

    >>> in_main_memory("clusters", 1_000, 8).how
    '1,000 x 8 B'
    """
    return Part(name, count * each, f"{count:,.0f} x {each:,.0f} B", host=True, pieces=pieces)


@dataclass(frozen=True)
class HeadCost:
    """What a head holds and computes; the plan adds up those of all heads.

    A dense head has label vectors of size ``dim``. A fitted head names its parts of main memory itself.
    """

    dim: int = 0  # of queries and label vectors
    matrices: int = 0  # weights that every device holds: projection, query matrix
    table: int = 0  # weights per label with a row-wise optimiser
    bias: int = 0  # further weights per label
    saved: int = 0  # tensors [labels of a step, dim] kept for the backward pass
    init_from_texts: bool = False  # rows are computed from texts and points before the first step
    ngram_rows: int = 0  # texts whose n-grams are held
    held: tuple[Part, ...] = ()  # once fitted
    fitting: tuple[Part, ...] = ()  # in addition, while it is fitted


def dense_cost(head: DenseSettings, encoder_dim: int, *, all_labels: bool) -> HeadCost:
    """Return the weights of a dense head, and what a step keeps of its label vectors."""
    dim = head.dim or encoder_dim
    projection = {"none": 0, "residual": dim**2}.get(head.projection, encoder_dim * dim + dim)
    picks_rows = head.has_table and (head.reads_text or not all_labels)  # else the table itself is used
    projects = head.reads_text and head.projection != "none"
    return HeadCost(
        dim=dim,
        matrices=projection + (dim**2 if head.query_matrix else 0),
        table=dim if head.has_table else 0,
        bias=int(head.bias),
        saved=picks_rows + projects * (1 + 2 * (head.dropout > 0)),
    )


class HeadWorkload(Protocol):
    """What a head may ask about the training it is planned for."""

    @property
    def points(self) -> int:
        """Train points."""
        ...

    @property
    def labels(self) -> int:
        """Labels."""
        ...

    @property
    def labels_per_point(self) -> float:
        """Mean number of labels of a point."""
        ...

    @property
    def ngrams_per_text(self) -> float:
        """Mean number of n-grams of a query."""
        ...

    @property
    def all_labels(self) -> bool:
        """Whether every label is in every step."""
        ...

    def encoder_dim(self, head: DenseSettings) -> int:
        """Return the size of the vectors that a head's queries come with."""
        ...

    def head_dim(self, name: str) -> int:
        """Return the size of the query vectors of a dense head."""
        ...
