"""Head ``overlap``: the share of a label's words that the query has, or of the query's words that the label has."""

from __future__ import annotations

import inspect
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from scipy import sparse

from megalabel.encoders._arrays import read_part, write_part
from megalabel.encoders._features import Features
from megalabel.encoders._token_table import idf
from megalabel.errors import DataError, SettingError
from megalabel.heads.answers import SearchedAnswers
from megalabel.heads.head import FittedHead, FittedSettings, register
from megalabel.heads.live import FewRows, GivenAnswers, spread_rows
from megalabel.heads.sparse.rows import PARTS, as_targets, pack, unpack
from megalabel.settings import PositiveFloat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from megalabel.heads.answers import Answers
    from megalabel.heads.head import FitData, NewTexts, Queries
    from megalabel.heads.live import Live, Part
    from megalabel.heads.sparse.inverted_index import InvertedIndex
    from megalabel.types import TopK

__all__ = ["Overlap", "OverlapSettings"]


@register
class OverlapSettings(FittedSettings):
    """Words that label and query share."""

    kind: Literal["overlap"] = "overlap"
    side: Literal["label", "query"] = "label"  # the text whose words are counted
    half_life: PositiveFloat = 3.0  # in words: the weight of a word halves every so many words
    split: Literal["scripts", "spaces"] = "scripts"  # where words end
    renamed: ClassVar[dict[str, str]] = {"half": "half_life"}

    def load(self, folder: str | PathLike[str]) -> Overlap:
        """Return the head written by its ``save``."""
        return Overlap.load(folder)

    def fit(self, data: FitData) -> Overlap:
        """Count the words of train and label texts."""
        overlap = Overlap(side=self.side, half_life=self.half_life, split=self.split)
        return overlap.fit(data.data.train.texts, data.data.labels.texts)


class Overlap(FittedHead):
    r"""Score a label by the share of words that its text has in common with the query.

    .. math::
        s(q, l) = \sum_{t \in q \cap l} a_t, \qquad
        a_t = \frac{\text{idf}_t \, 2^{-p_t / h}}{\sum_u \text{idf}_u \, 2^{-p_u / h}}

    over the words t of one ``side``: with ``label``, the shares a are those of the label's words,
    p_t is the position of the first t in its text, and the score is the share of the label that occurs
    in the query; with ``query`` it is the other way round. Scores lie in [0, 1]. The first words count
    most, and half as much ``half_life`` words later, because texts tend to begin with a name. Vectors
    of a few hundred numbers blur such matches of rare words. Nothing is trained, so a label
    without training points is scored like any other.

    Args:
        side: the text whose words are counted, ``label`` or ``query``.
        half_life: h, in words.
        words: number of columns that words are hashed to, a power of two.
        split: where words end, ``"scripts"`` or ``"spaces"``, as of :class:`megalabel.encoders.BagEncoder`.

    >>> overlap = Overlap(half_life=2).fit(["a beam of steel"], ["beam: long piece of wood", "steel"])
    >>> overlap.search(["girder: a beam of steel"], k=2).ids.tolist()
    [[1, 0]]
    """

    kind: ClassVar[str] = "overlap"

    def __init__(
        self,
        *,
        side: Literal["label", "query"] = "label",
        half_life: float = 3.0,
        words: int = 2**18,
        split: str = "scripts",
    ) -> None:
        self.split = split
        self.side, self.half_life, self.words = side, half_life, words
        self.idf_: NDArray[np.float32] | None = None  # [words]
        self.labels_: sparse.csr_matrix | None = None  # [L, words]
        self._index: InvertedIndex | None = None

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> Self:
        """Count the words of train and label texts, and store those of the labels."""
        self._check()
        if len(labels) == 0:
            raise DataError("there are no labels")
        self.idf_ = idf(self._features().tokenise([*texts, *labels]), self.words).astype(np.float32)
        self.labels_, self._index = self.label_rows(labels), None
        return self

    def scores(self, queries: Sequence[str], candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [Q, C] of some labels of each query; candidate -1 has -inf."""
        labels = np.ascontiguousarray(candidates, dtype=np.int64)
        total = self._ready().shape[0]
        if labels.ndim != 2 or len(labels) != len(queries):
            raise DataError(f"candidates must be [{len(queries)}, C], one row for each query, not {labels.shape}")
        if labels.min(initial=-1) < -1 or labels.max(initial=-1) >= total:
            raise DataError(f"candidates must lie in -1 to {total - 1:,}")
        return self._inverted_index().scores(self.query_rows(queries), labels)

    def search(self, queries: Sequence[str], k: int, exclude: sparse.csr_matrix | None = None) -> TopK:
        """Return the k best labels of each query that share a word with it, best first, ties by id.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k.
        """
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        out = None if exclude is None else as_targets(exclude, "exclude", (len(queries), self._ready().shape[0]))
        return self._inverted_index().search(self.query_rows(queries), k, out)

    def label_rows(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return the label rows [n, words] of the product, also for the texts of new labels."""
        return self._rows(texts, shares=self.side == "label")

    def query_rows(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return the query rows [n, words] of the product."""
        return self._rows(texts, shares=self.side == "query")

    def without(self, labels: NDArray[np.int64]) -> Self:
        """Return a head that never returns these labels and shares everything else with this one."""
        overlap = copy(self)
        overlap._index = self._inverted_index().without(labels)
        return overlap

    def answers(self, queries: Queries, live: Live) -> Answers:
        """Compare the words of the queries."""
        rows = self.query_rows(queries.texts)
        if live.unchanged:
            return SearchedAnswers(self._inverted_index(), rows)
        trained = live.cached("trained", lambda: self.without(live.hidden) if len(live.hidden) else self)

        def changed() -> Answers:
            words = live.cached("words", lambda: FewRows(live.parts["words"]))
            return GivenAnswers(words.products(rows), 0.0)

        return live.merged(SearchedAnswers(trained._inverted_index(), rows), changed)

    def new_rows(self, new: NewTexts) -> dict[str, Part]:
        """Return the words of the texts."""
        return {"words": self.label_rows(new.texts)}

    def grown(self, live: Live) -> Overlap:
        """Return a head with the words of all labels."""
        if live.total == live.first and not len(live.ids):
            return self
        overlap = copy(self)
        overlap._index = None
        overlap.labels_ = spread_rows(self._ready(), live.parts.get("words"), live)
        return overlap

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder for ``load`` completely or not at all, replacing an older one."""
        labels = self._ready()
        assert self.idf_ is not None
        write_part(folder, self.kind, self.config(), pack("labels", labels) | {"idf": self.idf_})

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the head written by ``save``."""
        wanted = ["idf", *(f"labels.{part}" for part in PARTS)]
        settings, arrays = read_part(folder, cls.kind, inspect.signature(cls).parameters, wanted)
        overlap = cls(**{"split": "spaces"} | settings)  # a model that is older than this setting
        overlap._check()
        overlap.labels_, overlap.idf_ = unpack("labels", arrays, folder), arrays["idf"]
        if overlap.idf_.shape != (overlap.words,) or overlap.labels_.shape[1] != overlap.words:
            raise DataError("words and labels do not match", path=folder, remedy="copy the folder again")
        return overlap

    def __repr__(self) -> str:
        return f"Overlap(side={self.side!r}, half_life={self.half_life!r}, words={self.words!r})"

    def _rows(self, texts: Sequence[str], *, shares: bool) -> sparse.csr_matrix:
        """Return the words of each text [n, words]: their shares a, or 1 for each."""
        from megalabel.encoders._counts import count_features

        assert self.idf_ is not None
        tokens = self._features().tokenise(texts)
        indptr, columns, _, place = count_features(tokens.ids, tokens.offsets)  # the first place of each word
        values = np.ones(len(columns), dtype=np.float32)
        if shares:
            rows = np.repeat(np.arange(len(texts)), np.diff(indptr))
            weights = self.idf_[columns] * 2.0 ** (-place / self.half_life)
            values = (weights / np.bincount(rows, weights=weights, minlength=len(texts))[rows]).astype(np.float32)
        words = sparse.csr_matrix((values, columns, indptr), shape=(len(texts), self.words))
        words.has_canonical_format = True
        return words

    def _features(self) -> Features:
        return Features(None, words=self.words, bigrams=0, characters=0, ngrams=[1], split=self.split)

    def _inverted_index(self) -> InvertedIndex:
        """Return the inverted index over the labels, built on first use."""
        from megalabel.heads.sparse.inverted_index import InvertedIndex

        if self._index is None:
            self._index = InvertedIndex(self._ready(), None, floor=0.0)
        return self._index

    def _ready(self) -> sparse.csr_matrix:
        if self.labels_ is None:
            raise SettingError("there are no labels yet", remedy="call fit first")
        return self.labels_

    def _check(self) -> None:
        if self.side not in ("label", "query"):
            raise SettingError(f"side is {self.side!r}", remedy="it must be label or query")
        if not 0 < self.half_life < np.inf:
            raise SettingError(f"half_life must be above 0, not {self.half_life}")
        if self.words < 1 or self.words & (self.words - 1):
            raise SettingError(f"words is {self.words}", remedy=f"give a power of two such as {2**18}")
