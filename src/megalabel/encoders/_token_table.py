"""Shared by encoders with a table of token vectors: initial values, files, inverse document frequencies."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from megalabel.encoders._arrays import read_tensors, write_tensors
from megalabel.encoders._base import SETTINGS, BaseEncoder
from megalabel.encoders._source import MODEL, TOKENIZER, folder_of, read_token_vectors, read_tokenizer
from megalabel.errors import SettingError
from megalabel.files import writing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from megalabel.encoders._features import Features
    from megalabel.types import Tokens

__all__ = ["COUNTED", "TableEncoder", "distinct_rows", "idf", "open_source", "start_rows"]

COUNTED = 65_536  # texts counted at a time


class TableEncoder(BaseEncoder):
    """Base of the encoders that add up rows of a table of features, whose gradients are sparse.

    A subclass sets ``features``, ``tokenizer``, ``table`` [rows, dim] and, if its tokens are weighted, ``weights``
    [rows] or [rows, 1] in its constructor, then calls :meth:`_begin`.
    """

    features: Features
    tokenizer: Tokenizer | None
    table: nn.Parameter
    weights: nn.Parameter

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the features of the texts: numbers of table rows, in the order of the text."""
        return self.features.tokenise(texts)

    def fingerprint(self) -> str:
        """Return a hash of everything the rows of a text depend on: tokenizer, table sizes, n-gram lengths."""
        return self.features.fingerprint()

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that get sparse gradients, for an optimiser with row-wise updates."""
        return [self.table, self.weights]

    @abstractmethod
    def fit(self, tokens: Tokens, *more: Tokens) -> Self:
        """Start the weights from the inverse document frequency of each token."""

    @abstractmethod
    def _start(self, vectors: Tensor | None) -> None:
        """Fill all parameters; the rows of the tokenizer start from these vectors, if given."""

    def _begin(self, folder: Path | None, *, saved: bool) -> None:
        """Read all weights of a saved encoder, or start from the token vectors of a model, or at random."""
        if folder is not None and saved:
            tensors = read_tensors(folder / self._weights_file(), self.state_dict())
            for name in tensors.keys() - {"table"}:  # in the file they are not aligned, which may change the last bit
                tensors[name] = tensors[name].clone()
            self.load_state_dict(tensors, assign=True)
        else:
            self._start(None if folder is None else read_token_vectors(folder))

    def _write(self, folder: Path) -> None:
        write_tensors(folder / self._weights_file(), self.state_dict())
        if self.tokenizer is not None:
            with writing(folder / TOKENIZER) as out:
                out.write(self.tokenizer.to_str().encode())

    def _weights_file(self) -> str:
        return f"{self.kind}.safetensors"


def open_source(source: str | None) -> tuple[Path | None, bool, Tokenizer | None]:
    """Return the folder of a source, whether it holds a saved encoder (with all weights), and its tokenizer if any."""
    if source is None:
        return None, False, None
    folder = folder_of(source)
    if folder is None:
        raise SettingError(f"there is no folder {source!r}", remedy="give the folder of a model, 'minilm', or None")
    saved = (folder / SETTINGS).is_file() and not (folder / MODEL).is_file()
    bare = saved and not (folder / TOKENIZER).exists()
    return folder, saved, None if bare else read_tokenizer(folder)


@torch.no_grad()
def start_rows(table: Tensor, vectors: Tensor, rows: int) -> None:
    """Fill the first rows of a table [R, d] with pretrained vectors of mean length 1.

    At most ``rows`` of them are used. Vectors of more than d numbers are cut to their d main
    directions; shorter ones are filled up with zeros.
    """
    vectors, dim = vectors[:rows], table.shape[1]
    if vectors.shape[1] > dim:
        _, directions = torch.linalg.eigh(vectors.T @ vectors)  # smallest first
        vectors = vectors @ directions[:, -dim:].flip(1)
    table[: len(vectors), : vectors.shape[1]] = vectors / vectors.norm(dim=1).mean()
    table[: len(vectors), vectors.shape[1] :] = 0


def distinct_rows(tokens: Tokens, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows [U] of a table with ``rows`` rows that texts name, ascending, and the places [m] of all.

    >>> from megalabel.types import Tokens
    >>> [part.tolist() for part in distinct_rows(Tokens(np.array([7, 2, 7], np.uint8), np.array([0, 3])), 9)]
    [[2, 7], [1, 0, 1]]
    """
    present = np.zeros(rows, dtype=bool)
    present[tokens.ids] = True
    distinct = np.flatnonzero(present)
    position = np.empty(rows, dtype=np.int64)
    position[distinct] = np.arange(len(distinct))
    return distinct, position[tokens.ids]


def idf(tokens: Tokens, rows: int, *more: Tokens) -> NDArray[np.float64]:
    r"""Return the inverse document frequency [rows] of each token in n texts, 1 for a token never seen.

    .. math:: \frac{1 + \log((n + 1) / (n_t + 1))}{1 + \log(n + 1)}

    with n_t the texts that have token t. Mapped tokens are read a block of texts at a time.

    >>> from megalabel.types import Tokens
    >>> idf(Tokens(np.array([0, 0, 1], np.uint8), np.array([0, 2, 3])), 3).round(3).tolist()
    [0.67, 0.67, 1.0]
    """
    n, seen = 0, np.zeros(rows, dtype=np.int64)
    for each in (tokens, *more):
        n += len(each)
        for start in range(0, len(each), COUNTED):
            offsets = each.offsets[start : start + COUNTED + 1]
            ids = each.ids[offsets[0] : offsets[-1]].astype(np.int64)
            parts = np.ones(len(ids), dtype=bool), ids, offsets - offsets[0]
            block = csr_matrix(parts, shape=(len(offsets) - 1, rows))
            block.sum_duplicates()  # a text counts once for a token
            seen += np.bincount(block.indices, minlength=rows)
    weights: NDArray[np.float64] = (1 + np.log((n + 1) / (seen + 1))) / (1 + np.log(n + 1))
    return weights
