"""How much data there is: points, labels, and how long their texts are."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from megalabel.errors import SettingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from megalabel.data.dataset import Dataset

__all__ = ["Sizes", "TextSize"]

TOKENS = 12  # of a text nobody said anything about: a title
_SAMPLE = 256  # texts looked at
_LETTERS = 4.0  # characters of a token
_PER_WORD = 1.3  # tokens of a word
_WORD = re.compile(r"\w+")
_KINDS = ("subwords", "words", "bigrams", "characters")
_GROWTH = (0.78, 0.82, 0.95, 0.81)  # of these kinds in documentation of programs: different ones among n, n ** this


@dataclass(frozen=True)
class TextSize:
    """The mean text of one side.

    ``growth`` says how fast new features turn up: n subwords (words, pairs of words, pieces of words)
    hold about n ** growth different ones (Heaps' law).
    """

    characters: float
    words: float
    tokens: float  # subwords of a tokenizer
    growth: tuple[float, float, float, float] = _GROWTH  # subwords, words, pairs, pieces

    @classmethod
    def of_tokens(cls, tokens: float) -> TextSize:
        """Return the size of a text of so many tokens, by usual proportions."""
        return cls(5 * tokens, max(1.0, tokens / _PER_WORD), tokens)

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer | None = None) -> TextSize:
        """Measure a few texts, evenly spread; without a tokenizer, a token is taken to have four characters.

        >>> size = TextSize.of(["red shoe", "a red shoe"])
        >>> size.characters, size.words
        (9.0, 2.5)
        """
        count = min(_SAMPLE, len(texts))
        some = [texts[len(texts) * place // count] for place in range(count)]
        if not some:
            return cls.of_tokens(TOKENS)
        rows = [_WORD.findall(text.lower()) for text in some]
        words = [word for row in rows for word in row]
        pairs = [pair for row in rows for pair in pairwise(row)]
        whole = [f"<{word}>" for word in words]
        pieces = [word[at : at + size] for word in whole for size in (3, 4, 5) for at in range(len(word) + 1 - size)]
        letters = sum(map(len, some)) / count
        tokens = letters / _LETTERS
        if tokenizer is not None:
            tokens = sum(len(row.ids) for row in tokenizer.encode_batch(some, add_special_tokens=False)) / count
        growth = (_GROWTH[0], _growth(words), _growth(pairs), _growth(pieces))
        return cls(letters, len(words) / count, max(1.0, tokens), growth)

    def features(self, ngrams: Sequence[int] = (3, 4, 5)) -> dict[str, float]:
        """Return how many features of each kind the text has for a bag: pieces of words have < and > at their ends."""
        letters = max(1.0, (self.characters - self.words + 1) / max(1.0, self.words))
        pieces = self.words * sum(max(0.0, letters + 3 - size) for size in ngrams)
        return dict(zip(_KINDS, (self.tokens, self.words, max(0.0, self.words - 1), pieces), strict=True))

    def different(self, kind: str, total: float, rows: int) -> float:
        """Return how many of ``rows`` table rows ``total`` features of a kind touch; hashed ones meet in a row."""
        if total <= 1 or rows == 0:
            return min(total, rows)
        new = total ** self.growth[_KINDS.index(kind)]
        return rows * -math.expm1(-new / rows)


def _growth(found: Sequence[object]) -> float:
    return math.log(max(2, len(set(found)))) / math.log(max(2, len(found))) if len(found) > 8 else 0.9


@dataclass(frozen=True)
class Sizes:
    """A data set, as far as memory and time go.

    >>> Sizes(points=1000, labels=100, labels_per_point=3.0).pairs
    3000.0
    """

    points: int  # train, validation included
    labels: int
    labels_per_point: float = 5.0
    query: TextSize = field(default_factory=lambda: TextSize.of_tokens(TOKENS))
    label: TextSize = field(default_factory=lambda: TextSize.of_tokens(TOKENS))
    tests: int = 0  # test points
    filtered: bool = False  # whether some pairs of train are neither right nor wrong

    def __post_init__(self) -> None:
        for name in ("points", "labels", "labels_per_point"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(f"{name} is {getattr(self, name)}", remedy="it must be above 0")
        if self.labels_per_point > self.labels:
            what = f"labels_per_point is {self.labels_per_point:g}, more than the {self.labels:,} labels there are"
            raise SettingError(what, remedy="give the mean number of labels of a point")

    @property
    def pairs(self) -> float:
        """Relevant pairs of point and label."""
        return self.points * self.labels_per_point

    @classmethod
    def of(cls, data: Dataset, tokenizer: Tokenizer | None = None) -> Sizes:
        """Measure a data set; texts by a few of them."""
        parts = [data.train] if data.val is None else [data.train, data.val]
        points = sum(len(part) for part in parts)
        return cls(
            points=points,
            labels=len(data.labels),
            labels_per_point=max(1, sum(part.targets.nnz for part in parts)) / points,
            query=TextSize.of(data.train.texts, tokenizer),
            label=TextSize.of(data.labels.texts, tokenizer),
            tests=len(data.test),
            filtered=len(data.train.filter) > 0,
        )
