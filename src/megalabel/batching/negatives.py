"""Negatives: mined or random labels that enter the pool; in-batch negatives need no code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.settings import NonNegativeInt, Settings, one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.types import Index

__all__ = ["NO_LISTS", "Mined", "NegativeSettings", "Negatives", "SearchSettings", "Uniform", "mine"]

NO_LISTS: NDArray[np.int32] = np.empty((0, 0), dtype=np.int32)  # before anything was mined


class Search(Settings):
    """How the nearest labels are found; see :mod:`megalabel.index`. Null means the default of the index."""

    kind: str

    def options(self) -> dict[str, int]:
        """Return the settings that are not null."""
        return {name: value for name, value in self if name != "kind" and value is not None}


class ExactSearch(Search):
    """Compare with every label."""

    kind: Literal["exact"] = "exact"


class HnswSearch(Search):
    """Walk a graph of neighbours."""

    kind: Literal["hnsw"] = "hnsw"
    M: Annotated[int, Field(ge=2)] | None = None  # links per label
    ef_construction: PositiveInt | None = None
    ef_search: PositiveInt | None = None


class IvfSearch(Search):
    """Compare with the labels of the nearest inverted lists."""

    kind: Literal["ivf"] = "ivf"
    nlist: PositiveInt | None = None
    nprobe: PositiveInt | None = None
    pq: PositiveInt | None = None  # bytes per vector
    rerank: PositiveInt | None = None  # times as many labels are scored exactly

    @model_validator(mode="after")
    def _check_rerank(self) -> Self:
        self.require(self.pq is not None, "rerank", "pq is not given, so all scores are exact")
        return self


if TYPE_CHECKING:
    SearchSettings = Search
else:
    SearchSettings = one_of(lambda: {"exact": ExactSearch, "hnsw": HnswSearch, "ivf": IvfSearch}, default="exact")


class NegativeSettings(Settings):
    """Labels that enter the step beside the positives.

    ``bm25`` labels share words with the query: they are found once, before training, and one of them per query is
    what DPR (Karpukhin et al., EMNLP 2020) is trained with.
    """

    uniform: NonNegativeInt = 0  # drawn at random, per batch; with labels: candidates, per query
    mined: NonNegativeInt = 0  # per query, drawn from its best-scored wrong labels
    bm25: NonNegativeInt = 0  # per query, drawn from its best wrong labels by BM25
    top: PositiveInt = 30  # how many best ones those are
    search: SearchSettings = ExactSearch()  # that finds the mined ones
    bias: bool = False  # mined ones are best by score with the biases of labels; False: by vectors alone

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        self.require(self.per_query > 0, "top", "mined and bm25 are 0")
        self.require(self.mined > 0, "search bias", "mined is 0")
        return self

    @property
    def per_query(self) -> int:
        """How many labels are drawn for each query from lists of its own."""
        return self.mined + self.bm25


class Negatives(Protocol):
    """Proposes label ids for a batch; the pool builder turns the ones that are positives of a row into its targets."""

    def draw(self, rows: NDArray[np.int64], labels: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return ids in [0, labels) for the batch ``rows``, with repetitions."""
        ...


@dataclass(frozen=True, eq=False)
class Mined:
    """Draw ``eta`` labels of each row's mined list, all equally likely.

    DEXML (Gupta et al. 2024, arXiv 2310.10636) draws from the top 100; UniDEC (Kharbanda et al.
    2024, arXiv 2405.03714) from eta x refresh period, so that epochs can draw different ones.

    Args:
        lists: [N, top] label ids per training row from :func:`mine`, padded with -1 at the end.
        eta: labels per row; a shorter list is used completely.

    >>> lists = np.array([[4, 7, 9], [5, -1, -1]], dtype=np.int32)
    >>> Mined(lists, eta=2).draw(np.array([0, 1]), 10, np.random.default_rng(0)).tolist()
    [7, 5, 4]
    """

    lists: NDArray[np.int32]
    eta: int

    def __post_init__(self) -> None:
        if self.eta < 1:
            raise SettingError(f"eta must be at least 1, not {self.eta}", remedy="leave mined negatives out for none")

    def draw(self, rows: NDArray[np.int64], labels: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the drawn ids, without duplicates within a row."""
        lists = self.lists[rows]
        length = np.count_nonzero(lists >= 0, axis=1)
        row = np.arange(len(rows))
        drawn = []
        for turn in range(min(self.eta, lists.shape[1])):  # a partial shuffle, all rows at once
            other = turn + (rng.random(len(rows)) * (length - turn)).astype(np.int64)
            live = turn < length
            rows_left, places = row[live], other[live]
            picked = lists[rows_left, places]
            lists[rows_left, places] = lists[rows_left, turn]
            drawn.append(picked)
        return np.concatenate(drawn).astype(np.int64) if drawn else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Uniform:
    """Draw ``n`` different labels for the whole batch, all equally likely.

    >>> Uniform(3).draw(np.array([0]), 3, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SettingError(f"n must be at least 1, not {self.n}", remedy="leave uniform negatives out for none")

    def draw(self, rows: NDArray[np.int64], labels: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return n different ids, or all labels if there are no more."""
        if self.n >= labels:
            return np.arange(labels)
        return rng.choice(labels, self.n, replace=False, shuffle=False)


def mine(
    queries: Tensor,
    index: Index,
    targets: sparse.csr_matrix,
    filter: NDArray[np.int64] | None,
    top: int,
    *,
    chunk: int = 65_536,
) -> NDArray[np.int32]:
    """Find each training row's ``top`` best-scored labels that are neither its positives nor filtered.

    ANCE (Xiong et al. 2021) and its followers DEXML and UniDEC. The result is a plain
    array for :class:`Mined` and for a checkpoint.

    Args:
        queries: [N, d] vectors of the training rows.
        index: an index over all label vectors.
        targets: [N, L] relevance of the training rows.
        filter: [n, 2] pairs (row, label) that are neither right nor wrong, or None.
        top: labels per row.
        chunk: rows searched at a time; bounds the memory of excluded pairs.

    Returns:
        [N, top] label ids, best first, padded with -1.

    >>> import torch
    >>> from megalabel.index import ExactIndex
    >>> mine(torch.tensor([[3.0, 2, 1]]), ExactIndex(torch.eye(3)), sparse.csr_matrix([[1.0, 0, 0]]), None, top=3)
    array([[ 1,  2, -1]], dtype=int32)
    """
    if len(queries) != targets.shape[0]:
        raise DataError(f"{len(queries)} query vectors but {targets.shape[0]} rows of targets")
    if top < 1:
        raise SettingError(f"top must be at least 1, not {top}")
    mined = np.empty((len(queries), top), dtype=np.int32)
    filtered = pairs_matrix(filter, targets.shape)
    for start in range(0, len(queries), chunk):
        part = slice(start, start + chunk)
        excluded = _ones(targets[part]) + filtered[part]
        mined[part] = index.search(queries[part], top, exclude=excluded).ids
    return mined


def pairs_matrix(pairs: NDArray[np.int64] | None, shape: tuple[int, int]) -> sparse.csr_matrix:
    """Return pairs [n, 2] as a matrix of ones."""
    pairs = np.empty((0, 2), dtype=np.int64) if pairs is None else np.asarray(pairs)
    ones = np.ones(len(pairs), dtype=np.float32)
    return _ones(sparse.csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=shape))


def _ones(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(matrix.nnz, dtype=np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)
