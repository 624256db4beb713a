"""Label spaces: what a head scores, either the labels or groups of labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
from pydantic import PositiveInt, model_validator
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels
from megalabel.encoders._arrays import read_part, write_part
from megalabel.errors import DataError, nearest
from megalabel.graphs import normalise, partition, pifa, random_walk
from megalabel.heads.sparse.rows import PARTS, pack, unpack
from megalabel.settings import Settings, one_of
from megalabel.types import LABELS
from megalabel.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Split

__all__ = [
    "SPACES",
    "AnySpace",
    "LabelSpace",
    "PartitionSettings",
    "SpaceSources",
    "build_spaces",
    "check_nesting",
    "group_dataset",
    "load_spaces",
    "over_groups",
    "with_finer",
]


@dataclass(frozen=True)
class LabelSpace:
    """A set that heads score.

    Args:
        name: ``labels``, or the name the recipe gives it.
        size: number of labels or groups.
        members: [size, L] csr, 1 where a label belongs to a group; None for the labels themselves.
        graph: [size, size] csr over which the scores of groups are propagated; None where no head wants that.

    >>> members = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 0]], dtype=np.float32))
    >>> space = LabelSpace("clusters", 2, members)
    >>> space.targets(sparse.csr_matrix(np.array([[0.5, 0, 0.75]], dtype=np.float32))).toarray().tolist()
    [[1.0, 0.0]]
    """

    name: str
    size: int
    members: sparse.csr_matrix | None = None
    graph: sparse.csr_matrix | None = None

    def with_graph(self, targets: sparse.csr_matrix, seed: int) -> LabelSpace:
        """Return the space with the random-walk graph over its groups, given the relevance [N, L] of train points."""
        return replace(self, graph=normalise(random_walk(self.targets(targets), seed=seed)))

    def targets(self, targets: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return relevance [N, size] from that of labels [N, L].

        The relevance of a group is the sum over its labels, at most 1.
        """
        if self.members is None:
            return targets
        grouped = sparse.csr_matrix(targets @ self.members.T, dtype=np.float32)
        grouped.sort_indices()
        np.minimum(grouped.data, 1, out=grouped.data)
        return grouped

    @cached_property
    def group_of(self) -> NDArray[np.int64]:
        """The group of each label [L]; the first one if it is in several."""
        assert self.members is not None
        by_label = self.members.T.tocsr()
        if np.any(np.diff(by_label.indptr) == 0):
            missing = int(np.sum(np.diff(by_label.indptr) == 0))
            raise DataError(f"the label space {self.name!r} leaves out {counted(missing, 'label')}")
        first: NDArray[np.int64] = by_label.indices[by_label.indptr[:-1]].astype(np.int64)
        return first

    def relation(self, finer: LabelSpace) -> sparse.csr_matrix | None:
        """Return [size, finer.size], 1 if a group shares a label with a finer one; None for the same space."""
        if self.name == finer.name:
            return None
        if self.members is None:
            raise DataError(f"the labels cannot propose candidates for the coarser space {finer.name!r}")
        overlap = self.members if finer.members is None else sparse.csr_matrix(self.members @ finer.members.T)
        ones = np.ones(overlap.nnz, dtype=np.float32)
        return sparse.csr_matrix((ones, overlap.indices, overlap.indptr), shape=overlap.shape)

    def grown(self, groups: NDArray[np.int64]) -> LabelSpace:
        """Return the space with further labels, each in one of the groups."""
        if self.members is None:
            return replace(self, size=self.size + len(groups))
        ones = np.ones(len(groups), dtype=np.float32)
        new = sparse.csr_matrix((ones, (groups, np.arange(len(groups)))), shape=(self.size, len(groups)))
        return replace(self, members=sparse.csr_matrix(sparse.hstack([self.members, new]), dtype=np.float32))

    def save(self, folder: Path) -> None:
        """Write members and graph for :func:`load_spaces`."""
        assert self.members is not None
        graph = {} if self.graph is None else pack("graph", self.graph)
        write_part(folder, "space", {"kind": "space"}, pack("members", self.members) | graph)


def load_spaces(folder: Path, names: list[str], labels: int) -> dict[str, LabelSpace]:
    """Return the space of the labels and those that :meth:`LabelSpace.save` wrote into ``folder/NAME``."""
    spaces = {LABELS: LabelSpace(LABELS, labels)}
    for name in names:
        plain, graph = ([f"{each}.{part}" for part in PARTS] for each in ("members", "graph"))
        _, arrays = read_part(folder / name, "space", (), plain, plain + graph)
        members = unpack("members", arrays, folder / name)
        if members.shape[1] != labels:
            raise DataError(f"the space {name!r} is over {members.shape[1]:,} labels, not {labels:,}", path=folder)
        edges = unpack("graph", arrays, folder / name) if graph[0] in arrays else None
        if edges is not None and edges.shape != (members.shape[0], members.shape[0]):
            raise DataError(f"the graph of the space {name!r} is damaged", path=folder, remedy="copy the folder again")
        spaces[name] = LabelSpace(name, members.shape[0], members, edges)
    return spaces


class SpaceSources(Protocol):
    """What label spaces are made from."""

    @property
    def targets(self) -> sparse.csr_matrix:
        """The relevance [N, L] of the train points."""

    @property
    def seed(self) -> int:
        """The random seed."""

    def points(self) -> NDArray[np.float32]:
        """Return the vectors [N, d] of the train points."""

    def texts(self) -> NDArray[np.float32]:
        """Return the vectors [L, d] of the label texts."""

    def ngrams(self) -> sparse.csr_matrix:
        """Return the n-grams [N, F] of the train points."""


class PartitionSettings(Settings):
    """Balanced clusters of labels, or groups of the clusters of a finer space."""

    kind: Literal["partition"] = "partition"
    size: PositiveInt | None = None  # number of clusters, at most one per label
    leaf: PositiveInt | None = None  # in place of size: the most labels of a cluster
    features: Literal["points", "graph", "texts", "ngrams", "points_and_ngrams"] = (
        "points"  # what labels are compared by
    )
    of: str | None = None  # the finer space whose clusters are joined

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        self.require(self.of is None, "features leaf", "the clusters of another space are joined")
        if (self.size is None) == (self.leaf is None):
            raise ValueError("give either size, the number of clusters, or leaf, the most labels of a cluster")
        return self

    def count(self, labels: int) -> int:
        """Return the number of clusters of so many labels: 2^ceil(log2(L / leaf)), or ``size``, but at most L.

        >>> PartitionSettings(leaf=100).count(131_073), PartitionSettings(size=64).count(10)
        (2048, 10)
        """
        if self.leaf is None:
            return min(self.size or labels, labels)
        return min(labels, 1 << max(0, math.ceil(math.log2(labels / self.leaf))))

    def build(self, name: str, sources: SpaceSources, finer: LabelSpace | None = None) -> LabelSpace:
        """Return the space; ``finer`` is that of ``of``.

        Clusters have near-equal size (the surrogate task of DeepXML, Dahiya et al., WSDM 2021, section 3). Those
        of a partition are numbered along the tree that made them, so neighbours are joined: cluster c of K
        becomes part of c * size // K. Sizes that are powers of two give levels of the same tree.
        """
        labels = sources.targets.shape[1]
        if finer is None:
            size = self.count(labels)
            cluster = partition(self._vectors(sources), clusters=size, seed=sources.seed)
        else:
            size = self.count(finer.size)
            cluster = finer.group_of * size // finer.size
        parts = np.ones(labels, dtype=np.float32), (cluster, np.arange(labels))
        return LabelSpace(name, size, sparse.csr_matrix(parts, shape=(size, labels)))

    @property
    def reads(self) -> set[str]:
        """Which features are read: none if the space is made of another."""
        return set() if self.of is not None else set(self.features.split("_and_"))

    def _vectors(self, sources: SpaceSources) -> sparse.csr_matrix | NDArray[np.float32]:
        """Return the vectors [L, d] by which labels are compared."""
        if self.features == "texts":
            return sources.texts()
        if self.features == "ngrams":
            return pifa(sources.ngrams(), sources.targets)
        means = pifa(sources.points(), sources.targets)
        if self.features == "points_and_ngrams":
            parts = [sparse.csr_matrix(means), pifa(sources.ngrams(), sources.targets)]
            return sparse.csr_matrix(sparse.hstack([_unit_rows(sparse.csr_matrix(part)) for part in parts]))
        if self.features == "points":
            return means
        return np.asarray(normalise(random_walk(sources.targets, seed=sources.seed)) @ means)


def _unit_rows(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the rows scaled to length 1."""
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sparse.csr_matrix(sparse.diags(scale) @ matrix, dtype=np.float32)


SPACES = {"partition": PartitionSettings}
if TYPE_CHECKING:
    AnySpace = PartitionSettings
else:
    AnySpace = one_of(lambda: SPACES, default="partition")


def build_spaces(settings: Mapping[str, PartitionSettings], sources: SpaceSources) -> dict[str, LabelSpace]:
    """Return the spaces of some settings by name, those that others are made of first."""
    spaces: dict[str, LabelSpace] = {}

    def build(name: str) -> LabelSpace:
        if name not in spaces:
            finer = settings[name].of
            spaces[name] = settings[name].build(name, sources, None if finer is None else build(finer))
        return spaces[name]

    for name in settings:
        build(name)
    return spaces


def with_finer(settings: Mapping[str, PartitionSettings], names: Iterable[str | None]) -> set[str]:
    """Return the spaces of these names and those they are made of.

    >>> levels = {"coarse": PartitionSettings(size=4, of="fine"), "fine": PartitionSettings(size=16)}
    >>> sorted(with_finer(levels, ["coarse", None]))
    ['coarse', 'fine']
    """
    used: set[str] = set()
    for start in names:
        name = start
        while name is not None and name in settings and name not in used:
            used.add(name)
            name = settings[name].of
    return used


def check_nesting(settings: Mapping[str, PartitionSettings]) -> None:
    """Raise a ValueError if a space is made of one that is not there, or that is not finer."""
    for name, space in settings.items():
        others = [other for other in settings if other != name]
        if space.of is not None and space.of not in others:
            hint = nearest(space.of, others) if others else "there is none"
            raise ValueError(f"spaces.{name}.of is {space.of!r}; {hint}")
        finer = None if space.of is None else settings[space.of]
        if finer is not None and space.size and finer.size and space.size >= finer.size:
            raise ValueError(f"spaces.{name}.size must be below that of {space.of!r}, whose clusters it joins")


def over_groups(spaces: Mapping[str, LabelSpace], name: str) -> dict[str, LabelSpace]:
    """Return the spaces of a stage over the groups of one of them: these are its labels; the others group them.

    >>> fine, coarse = ([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]], [[1, 1, 0, 1], [0, 0, 1, 0]])
    >>> spaces = {
    ...     key: LabelSpace(key, len(rows), sparse.csr_matrix(np.array(rows, dtype=np.float32)))
    ...     for key, rows in (("fine", fine), ("coarse", coarse))
    ... }
    >>> staged = over_groups(spaces, "fine")
    >>> staged["labels"].size, staged["coarse"].members.toarray().tolist()
    (3, [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    """
    groups = spaces[name]
    others = {key: space for key, space in spaces.items() if key != name and space.members is not None}
    coarser = {key: LabelSpace(key, space.size, space.relation(groups)) for key, space in others.items()}
    return {LABELS: LabelSpace(LABELS, groups.size), **coarser}


def group_dataset(data: Dataset, space: LabelSpace) -> Dataset:
    """Return the same points with the groups of a space as labels; filter pairs are dropped.

    The text of a group is the texts of its labels, one after the other: for a bag of features, their sum.

    >>> data = Dataset.from_lists(
    ...     train=[("a", [0, 2]), ("b", [1]), ("c", [3])], test=[("d", [2])], labels=["w", "x", "y", "z"])
    >>> members = sparse.csr_matrix(np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=np.float32))
    >>> grouped = group_dataset(data, LabelSpace("clusters", 2, members))
    >>> grouped.train.targets.toarray().tolist(), grouped.labels.texts
    ([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], ['w y', 'x z'])
    """

    def grouped(split: Split) -> Split:
        return replace(split, targets=space.targets(split.targets), filter=np.empty((0, 2), dtype=np.int64))

    assert space.members is not None
    names = [str(number) for number in range(space.size)]
    parts = np.split(space.members.indices, space.members.indptr[1:-1])
    texts = [" ".join(data.labels.texts[label] for label in sorted(part)) for part in parts]
    return Dataset(
        train=grouped(data.train),
        test=grouped(data.test),
        val=None if data.val is None else grouped(data.val),
        labels=Labels(texts, names),
        name=f"{data.name}, {space.size:,} groups of labels",
    )
