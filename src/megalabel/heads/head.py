"""The life cycle every kind of head goes through, and the registry of kinds.

One file of this package is one kind: a :class:`HeadSettings` subclass with a literal ``kind`` (its keys in a recipe)
and a class with its weights and rules. :func:`register` makes a kind known; nothing else has to change.

There are two families. *Dense* heads are trained by steps: :class:`megalabel.heads.dense.DenseHead` gives the two
sides of a score and takes part in the network's loss. *Fitted* heads train no encoder: they are fitted
after the network is trained (:class:`FittedHead`). Both score queries, accept new labels, save, load, and report their
costs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar

from pydantic import PositiveInt, model_validator

from megalabel.augment.gandalf import KnownLabels
from megalabel.errors import SettingError
from megalabel.heads.cost import HeadCost
from megalabel.settings import Settings, one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray
    from scipy import sparse
    from torch import Tensor

    from megalabel.data.dataset import Dataset, Split
    from megalabel.heads.answers import Answers
    from megalabel.heads.cost import HeadWorkload
    from megalabel.heads.dense import DenseHead
    from megalabel.heads.live import Live, Part

__all__ = [
    "HEADS",
    "NGRAMS",
    "AnyHead",
    "Changed",
    "FitData",
    "FittedHead",
    "FittedSettings",
    "HeadSettings",
    "InitData",
    "NewTexts",
    "Queries",
    "TrainTexts",
    "check_bounds",
    "register",
]

NGRAMS = "ngrams"  # the features of a head that reads sparse n-grams of the texts

HEADS: dict[str, type[HeadSettings]] = {}
Kind = TypeVar("Kind", bound="type[HeadSettings]")


class HeadSettings(Settings):
    """Settings of a head in a recipe; each kind has a subclass."""

    kind: str
    trained: ClassVar[bool]  # by steps and a loss; False: fitted after the network is trained
    reads_text: ClassVar[bool] = False  # the texts of labels are encoded to score them
    has_table: ClassVar[bool] = False  # learns rows of a table, of which a step touches some
    corrects_text: ClassVar[bool] = False  # these rows are added to encoded label texts, and a new label has none

    @property
    def text_only(self) -> bool:
        """Whether the vector of a label is its encoded text and nothing else."""
        return self.reads_text and not self.has_table

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the memory and computation of the head during training, for the plan."""
        return HeadCost()


def register(settings: Kind) -> Kind:
    """Make a kind of head known to recipes; for use as a class decorator.

    >>> "text" in HEADS and HEADS["text"].trained
    True
    """
    kind = settings.__pydantic_fields__["kind"].default
    if not isinstance(kind, str):
        raise SettingError(f"{settings.__name__}.kind needs a literal default", remedy='kind: Literal["x"] = "x"')
    HEADS[kind] = settings
    return settings


if TYPE_CHECKING:
    AnyHead: TypeAlias = HeadSettings
else:
    AnyHead = one_of(lambda: HEADS)


@dataclass(frozen=True)
class Changed:
    """How the train rows differ from those that a known head was fitted on.

    Args:
        labels: ids of the labels whose rows have changed.
        places: where the known head's rows are among the train rows, in its order; None if they are not among them.
    """

    labels: NDArray[np.int64]
    places: NDArray[np.int64] | None = None


class FittedSettings(HeadSettings):
    """A head that is fitted after the network is trained."""

    trained: ClassVar[bool] = False
    feature_keys: ClassVar[tuple[str, ...]] = ()  # settings that are ``ngrams`` or name a dense head

    @property
    def reads_ngrams(self) -> bool:
        """Whether the head reads n-grams of texts."""
        return any(getattr(self, key) == NGRAMS for key in self.feature_keys)

    def fit(self, data: FitData) -> FittedHead:
        """Return the head, fitted on the train rows."""
        raise NotImplementedError

    def refit(self, data: FitData, known: FittedHead, changed: Changed) -> FittedHead:
        """Return the head fitted on the train rows, given one over the same labels fitted on nearly the same rows.

        A kind that can start from ``known`` does so.
        """
        return self.fit(data)

    def load(self, folder: str | PathLike[str]) -> FittedHead:
        """Return the head written by its ``save``."""
        raise NotImplementedError


class RowSettings(FittedSettings):
    """A fitted head that learns from train rows as sparse features."""

    # Label texts as rows: none, each with its own label, with Gandalf's targets, or with calibrated ones.
    labels: Literal["none", "self", "gandalf", "calibrated"] = "none"
    known: KnownLabels = "merge"  # labels of a label text that is a train text too; see megalabel.augment.gandalf
    max_targets: PositiveInt | None = None  # largest number of targets of a label text, for gandalf and calibrated
    renamed: ClassVar[dict[str, str]] = {"most": "max_targets", "common": "max_df", "of": "features"}

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the rows whose n-grams are held: train points, and label texts if they are rows too."""
        rows = workload.points + (workload.labels if self.labels != "none" else 0)
        return HeadCost(ngram_rows=rows if self.reads_ngrams else 0)

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        graph = self.labels in ("gandalf", "calibrated")
        self.require(graph, "max_targets known", "labels is neither gandalf nor calibrated")
        if self.labels == "calibrated" and self.max_targets == 1:
            raise ValueError("labels: calibrated has no effect: max_targets is 1; choose gandalf")
        return self


class FittedHead(ABC):
    """A fitted head: it trains no encoder."""

    kind: ClassVar[str]

    @abstractmethod
    def answers(self, queries: Queries, live: Live) -> Answers:
        """Return the scores of the queries over the current labels."""

    @abstractmethod
    def new_rows(self, new: NewTexts) -> dict[str, Part]:
        """Return what the head stores for added or renamed labels: named parts with one row per label."""

    @abstractmethod
    def grown(self, live: Live) -> FittedHead:
        """Return a head over all ``live.total`` labels, with the changed ones merged in."""

    def finished(self) -> Self:
        """Return the head without what only :meth:`FittedSettings.refit` could start from."""
        return self

    @abstractmethod
    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder for ``load`` completely or not at all, replacing an older one."""

    @classmethod
    @abstractmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the head written by ``save``."""


def check_bounds(head: FittedHead, above_zero: Sequence[str], least: Mapping[str, float]) -> None:
    """Raise :class:`SettingError` unless these attributes are finite, above zero or at least ``least``."""
    for name in above_zero:
        if not 0 < getattr(head, name) < math.inf:
            raise SettingError(f"{name} must be above 0, not {getattr(head, name)}")
    for name, smallest in least.items():
        if not smallest <= getattr(head, name) < math.inf:
            raise SettingError(f"{name} must be at least {smallest}, not {getattr(head, name)}")


# ------------------------------------------------------------------ what the network provides to heads


class InitData(Protocol):
    """What a dense head can use to initialise its weights before the first step."""

    seed: int

    @property
    def targets(self) -> sparse.csr_matrix:
        """Relevance [N, size] of the train rows in the head's label space."""
        ...

    @property
    def shard(self) -> range:
        """The labels whose rows this process holds."""
        ...

    def points(self) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield rows and their query vectors by this head, as used in search, block by block."""
        ...

    def mean_point(self) -> Tensor:
        """Return the mean query vector of the train points by this head, as used in search."""
        ...

    def group_probabilities(self, head: str) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield rows and log p [n, size] of all that another head scores, block by block."""
        ...

    def texts(self, start: int, stop: int) -> Tensor:
        """Return the label texts ``start`` to ``stop`` as queries of this head, as used in search."""
        ...

    def all_texts(self) -> Tensor:
        """Return the texts of all labels as queries of this head, as searched; every process encodes its share."""
        ...

    def encoded_labels(self, start: int, stop: int) -> Tensor:
        """Return the label texts ``start`` to ``stop``, encoded for this head, without its layers."""
        ...

    def label_vectors(self) -> Tensor:
        """Return the head's label vectors of ``shard``, as used in search."""
        ...


class TrainTexts(Protocol):
    """The texts a dense head was trained on, encoded with the current weights and without gradient."""

    def points(self, ids: Tensor) -> Tensor:
        """Return train points [n], encoded as queries of this head [n, encoder_dim]."""
        ...

    def labels(self, ids: Tensor) -> Tensor:
        """Return the texts of labels [n], encoded for this head [n, encoder_dim]."""
        ...


class FitData(Protocol):
    """What a fitted head can use in ``fit``."""

    data: Dataset
    seed: int

    def rows(self, settings: RowSettings) -> Split:
        """Return the train rows, plus label texts as rows if the settings say so."""
        ...

    def features(self, name: str, split: Split) -> sparse.csr_matrix | NDArray[np.float32]:
        """Return the features of a split's texts: n-grams, or the query vectors of the dense head ``name``."""
        ...


class Queries(Protocol):
    """Texts to score; their features are computed once for all heads."""

    texts: Sequence[str]
    seen: bool  # the texts were trained on: a head that remembers rows leaves out those equal to a query

    def features(self, name: str) -> Any:
        """Return the n-grams of the texts (csr), or their query vectors by the dense head ``name`` (an array)."""
        ...


class NewTexts(Protocol):
    """Labels that were added or renamed after training, and the features of their texts."""

    ids: NDArray[np.int64]  # [n]
    texts: Sequence[str]
    added: bool  # False: trained labels with a new text
    rare: NDArray[np.int64]  # ids of the trained labels with the fewest points

    def encoded(self, head: DenseHead) -> Tensor:
        """Return the texts encoded by the label encoder of a head [n, d]."""
        ...

    def features(self, name: str) -> Any:
        """Return the features of the texts as queries, as in :class:`Queries`."""
        ...

    def nearest(self) -> tuple[Tensor, Tensor]:
        """Return the trained labels nearest by text [n, m] and their weights [n, m], which sum to 1."""
        ...
