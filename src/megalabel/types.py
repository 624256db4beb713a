"""The contracts between packages on one page: the values they exchange, and the protocols of the parts.

This module does not import torch at run time, so reading data and evaluating predictions
stay light. Scores are always "higher is better"; a label id is its column in the relevance
matrix Y [N, L].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.ranks import Ranks

__all__ = ["LABELS", "Batch", "Encoder", "Index", "Loss", "Targets", "Tokens", "TopK", "View"]

LABELS = "labels"  # the name of the label space of the labels themselves
COMPARED = 65_536  # texts compared at a time


# --------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Targets:
    """Sparse relevance of a block of scores: cell (rows[n], cols[n]) is worth values[n].

    Cells not listed are negatives. Cells are unique; values lie in (0, 1].
    """

    rows: Tensor  # [nnz] int64
    cols: Tensor  # [nnz] int64, columns of the block (positions in the pool), not label ids
    values: Tensor  # [nnz] float
    shape: tuple[int, int]  # (B, P)

    @classmethod
    def from_dense(cls, dense: Tensor) -> Targets:
        """Keep the cells above zero of a [B, P] tensor."""
        rows, cols = dense.nonzero(as_tuple=True)
        return cls(rows, cols, dense[rows, cols], (dense.shape[0], dense.shape[1]))

    @classmethod
    def from_csr(cls, matrix: csr_matrix) -> Targets:
        """Convert a scipy csr matrix [B, P]."""
        import numpy as np
        import torch

        rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
        return cls(
            torch.from_numpy(rows),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data.copy()),
            (matrix.shape[0], matrix.shape[1]),
        )

    def dense(self) -> Tensor:
        """Return the [B, P] tensor; for small blocks and tests."""
        out = self.values.new_zeros(self.shape)
        out[self.rows, self.cols] = self.values
        return out

    def to(self, device: object) -> Targets:
        """Return the same targets on another device."""
        move = {"device": device}
        return Targets(
            self.rows.to(**move),  # type: ignore[call-overload]
            self.cols.to(**move),  # type: ignore[call-overload]
            self.values.to(**move),  # type: ignore[call-overload]
            self.shape,
        )


@dataclass(frozen=True, slots=True)
class View:
    """The labels of one space that a batch is scored against: a pool shared by the batch, or candidates per row."""

    targets: Targets  # over the pool's columns, or over the candidates' slots
    pool: Tensor | None = None  # [P] ids shared by the batch, or all its candidates, ascending; None = all of the space
    candidates: Tensor | None = None  # [B, S] ids per row, padded with -1
    mask: Tensor | None = None  # [B, P] or [B, S] bool, False = the cell is ignored

    def to(self, device: object) -> View:
        """Return the same view on another device."""
        parts = (None if part is None else part.to(device=device) for part in (self.pool, self.candidates, self.mask))  # type: ignore[call-overload]
        return View(self.targets.to(device), *parts)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step trains on: queries, and a view for each label space in use.

    Targets always come from the full Y, so that a known positive is never a negative.
    """

    queries: Tensor  # [B] row numbers in the training set
    views: Mapping[str, View]  # by label space; "labels" is the space of the labels themselves
    anchors: Tensor | None = None  # [B] the label id that each query was drawn for, if batches are made of labels
    partners: Tensor | None = None  # [B] a second training row of that label; the query itself if it is the only one

    @property
    def view(self) -> View:
        """The view of the labels themselves."""
        return self.views[LABELS]

    def to(self, device: object) -> Batch:
        """Return the same batch on another device."""
        views = {space: view.to(device) for space, view in self.views.items()}
        others = (None if part is None else part.to(device=device) for part in (self.anchors, self.partners))  # type: ignore[call-overload]
        return Batch(self.queries.to(device=device), views, *others)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Texts as ragged token ids: text i is ids[offsets[i]:offsets[i + 1]], without special tokens, never padded."""

    ids: NDArray[np.unsignedinteger]  # [all tokens], the smallest type that fits the vocabulary, maybe memory-mapped
    offsets: NDArray[np.int64]  # [n + 1], from 0 to len(ids)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> NDArray[np.unsignedinteger]:
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def __add__(self, other: Tokens) -> Tokens:
        """Return the texts of both, one after the other."""
        import numpy as np

        return Tokens(
            np.concatenate([self.ids, other.ids]), np.concatenate([self.offsets, other.offsets[1:] + len(self.ids)])
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text [n]."""
        return self.offsets[1:] - self.offsets[:-1]

    def take(self, rows: NDArray[np.integer[Any]] | Sequence[int], length: int | None = None) -> Tokens:
        """Return texts ``rows`` in that order, each cut to its first ``length`` tokens; mapped ids stay on disk.

        >>> import numpy as np
        >>> tokens = Tokens(np.array([7, 8, 9], dtype=np.uint16), np.array([0, 1, 1, 3]))
        >>> some = tokens.take([2, 0, 2], length=1)
        >>> some.ids.tolist(), some.offsets.tolist()
        ([8, 7, 8], [0, 1, 2, 3])
        """
        import numpy as np

        rows = np.asarray(rows, dtype=np.int64)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        if length is not None:
            np.minimum(lengths, length, out=lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Tokens(np.asarray(self.ids)[places], offsets)

    def cut(self, start: int, stop: int) -> Tokens:
        """Return texts ``start`` to ``stop``; ids are not copied."""
        first, last = self.offsets[start], self.offsets[stop]
        return Tokens(self.ids[first:last], self.offsets[start : stop + 1] - first)

    def unique(self) -> tuple[Tokens, NDArray[np.int64]]:
        """Return each different text once, in order of first appearance, and ``inverse`` [n].

        Text i is text inverse[i] of the result, so vectors of the few give those of all by
        ``vectors.index_select(0, inverse)``. Texts are grouped by a 64-bit hash and then compared, block by
        block. If all differ, the result is this object, so mapped ids stay on disk.

        >>> import numpy as np
        >>> tokens = Tokens(np.array([7, 8, 7, 7, 8], dtype=np.uint16), np.array([0, 2, 3, 5]))
        >>> few, inverse = tokens.unique()
        >>> [few[i].tolist() for i in range(len(few))], inverse.tolist()
        ([[7, 8], [7]], [0, 1, 0])
        """
        import numpy as np

        if len(self) < 2:
            return self, np.arange(len(self))
        lengths, blocks = self.lengths, range(0, len(self), COMPARED)
        powers = np.cumprod(np.full(int(lengths.max(initial=0)), 0x9E3779B97F4A7C15, dtype=np.uint64))
        hashes = np.zeros(len(self), dtype=np.uint64)
        for start in blocks:
            offsets = self.offsets[start : start + COMPARED + 1] - self.offsets[start]
            flat = self.ids[self.offsets[start] : self.offsets[start] + offsets[-1]].astype(np.uint64) + np.uint64(1)
            flat *= powers[np.arange(len(flat)) - np.repeat(offsets[:-1], np.diff(offsets))]
            sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(flat, dtype=np.uint64)])  # modulo 2 ** 64
            hashes[start : start + COMPARED] = sums[offsets[1:]] - sums[offsets[:-1]]
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        same = first[inverse]  # [n] the first text with this hash
        if not all(self._equal(same, start) for start in blocks):
            seen: dict[bytes, int] = {}
            same = np.array([seen.setdefault(self[i].tobytes(), i) for i in range(len(self))], dtype=np.int64)
        first, inverse = np.unique(same, return_inverse=True)
        return (self if len(first) == len(self) else self.take(first)), inverse

    def _equal(self, same: NDArray[np.int64], start: int) -> bool:
        """Return whether each text i of a block equals text ``same[i]``."""
        import numpy as np

        rows = np.arange(start, min(start + COMPARED, len(self)))
        rows = rows[same[rows] != rows]
        texts, others = self.take(rows), self.take(same[rows])
        return np.array_equal(texts.offsets, others.offsets) and np.array_equal(texts.ids, others.ids)


@dataclass(frozen=True, slots=True)
class TopK:
    """A ranking per query, best first; a row with fewer than k labels ends in id -1, score -inf."""

    ids: NDArray[np.int64]  # [Q, k]
    scores: NDArray[np.float32]  # [Q, k]


# ---------------------------------------------------------------------------- parts


class Loss(Protocol):
    """Maps scores and targets to one number and never sees a model.

    ``scores`` [B, P] (already divided by the temperature), ``targets`` dense [B, P] or
    :class:`Targets`, ``mask`` [B, P] bool where False removes the cell, as if the row
    did not have that label. Differentiable; never changes its inputs.
    """

    def __call__(self, scores: Tensor, targets: Tensor | Targets, mask: Tensor | None = None) -> Tensor:
        """Return the loss of one block."""
        ...


@dataclass(frozen=True, slots=True)
class Positives:
    """The positive cells of a loss, without masked ones, and their scores."""

    rows: Tensor  # [n] int64
    cols: Tensor  # [n] int64
    values: Tensor  # [n] relevance in (0, 1]
    scores: Tensor  # [n]
    shape: tuple[int, int]  # (B, P)


class Stream(Protocol):
    """One computation of a loss over blocks of scores, with its row state.

    Blocks [B, w] cover the columns in order and hold the scores of the *negatives*; a
    positive or masked cell is -inf. After ``finish``, the caller computes the blocks again and
    calls ``block_gradient`` for each if ``sparse`` is False, else ``sparse_gradient`` once. A
    ``separable`` stream has no row state: its ``block_gradient`` needs only the block, so one
    pass is enough.
    Gradients are those of the plain sum of the row losses.
    """

    separable: bool
    sparse: bool

    def update(self, block: Tensor, start: int) -> None:
        """Process the block whose first column is ``start``; does not change the block."""
        ...

    def more(self) -> bool:
        """End a pass over all blocks; return True if another pass is needed."""
        ...

    def finish(self) -> Tensor:
        """Return the row losses [B]."""
        ...

    def positive_gradient(self) -> Tensor:
        """Gradient [n] for the scores of the positives."""
        ...

    def block_gradient(self, block: Tensor) -> Tensor:
        """Gradient [B, w] for a block of negatives, 0 where the block is -inf; may overwrite the block."""
        ...

    def sparse_gradient(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and values of the non-zero gradients of negatives."""
        ...


class StreamedLoss(Loss, Protocol):
    """A loss that can also be computed block by block; ``reduction`` is how row losses become one number."""

    @property
    def reduction(self) -> str:
        """One of mean, sum, none."""
        ...

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start one computation; the positives are those of this process."""
        ...


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into vectors; a torch module, trained through ``forward``, used through ``encode``.

    Input is ragged, grouped by length inside, and never padded to a fixed length: which texts are
    encoded together changes the vectors by rounding only. Vectors are not normalised; the head
    does that. A text may have no tokens.

    ``save`` writes weights and settings (safetensors and JSON) to a folder that
    ``megalabel.encoders.load_encoder`` reads without a network or the source of the weights.
    """

    @property
    def dim(self) -> int:
        """Size of a vector."""
        ...

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of the texts (for a bag: the ids of its features); a separate step, to store them once.

        Ids depend only on the text and on what ``fingerprint`` covers; their type is the same in every call.
        """
        ...

    def fingerprint(self) -> str:
        """Return a name of the tokenisation, equal in any process if the same texts give the same tokens."""
        ...

    def forward(
        self, tokens: Tokens, max_length: int | None = None, layers: Sequence[int | tuple[int, ...]] | None = None
    ) -> Tensor:
        """Return [n, dim] with its graph, row i for text i; ``max_length`` replaces the encoder's own.

        Call it separately for queries and labels if their lengths differ. With ``layers``, a transformer returns
        the vectors of several layers in one pass, [n, len(layers), dim]; layer 1 is its first block, and a tuple
        is the mean of its layers. Encoders with one layer refuse it.
        """
        ...

    def encode(
        self,
        tokens: Tokens,
        max_length: int | None = None,
        *,
        normalise: bool = False,
        layers: Sequence[int | tuple[int, ...]] | None = None,
    ) -> Tensor:
        """Return ``forward`` in evaluation mode, without a graph, as float32 on the CPU, with progress.

        ``normalise`` scales rows to length 1. The mode of the module does not change.
        """
        ...

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON; ``build_encoder`` takes it."""
        ...

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the folder that ``load_encoder`` reads, completely or not at all."""
        ...


@runtime_checkable
class Index(Protocol):
    """Finds the k best labels of each query vector; excluded pairs are removed before the cut to k."""

    def search(self, vectors: Tensor, k: int, exclude: csr_matrix | None = None) -> TopK:
        """Rank labels for vectors [Q, d]; ``exclude`` [Q, L] marks pairs to remove before the cut to k."""
        ...
