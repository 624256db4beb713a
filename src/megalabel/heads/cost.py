"""Memory and computation of heads, for the plan of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from megalabel.cost import FLOAT

if TYPE_CHECKING:
    from megalabel.cost import Part
    from megalabel.heads.dense import DenseSettings

__all__ = ["HeadCost", "HeadWorkload", "dense_cost"]


@dataclass(frozen=True)
class HeadCost:
    """Memory and computation of one head; the plan adds up all heads.

    A dense head has label vectors of size ``dim``. A fitted head lists its parts of main memory.
    """

    dim: int = 0  # of queries and label vectors
    matrices: int = 0  # weights that every device holds: projection, query matrix
    table: int = 0  # weights per label with a row-wise optimiser
    table_bytes: int = FLOAT  # of each of them
    bias: int = 0  # further weights per label
    kept: int = 0  # numbers of 4 bytes per label that are not trained
    points: int = 0  # train points per label of a step whose texts are encoded
    point_labels: int = 0  # labels of each of these points whose texts are encoded
    label_neighbours: int = 0  # further labels per label of a step whose texts are encoded
    shared: int = 0  # rows [dim] that every device holds, with a row-wise optimiser
    saved: int = 0  # tensors [labels of a step, dim] kept for the backward pass
    init_from_texts: bool = False  # rows are computed from texts and points before the first step
    init_labels: int = 0  # tensors [all labels, dim] held while its rows are computed
    ngram_rows: int = 0  # texts whose n-grams are held
    held: tuple[Part, ...] = ()  # after fitting
    fitting: tuple[Part, ...] = ()  # in addition, during fitting


def dense_cost(head: DenseSettings, encoder_dim: int, *, all_labels: bool) -> HeadCost:
    """Return the weights of a dense head, and the tensors of label vectors that a step keeps."""
    dim = head.dim or encoder_dim
    others = {
        "none": 0,
        "residual": dim**2,
        "layer_norm": encoder_dim * dim + 3 * dim,
        "gated_residual": dim**2 + 3 * dim,
    }
    projection = others.get(head.projection, encoder_dim * dim + dim)
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
    """What a head can read about the training run it is planned for."""

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
        """Return the size of the encoder vectors of a head's queries."""
        ...

    def groups(self, head: DenseSettings) -> int:
        """Return how many groups the head that proposes candidates to a head scores."""
        ...

    def head_dim(self, name: str) -> int:
        """Return the size of the query vectors of a dense head."""
        ...
