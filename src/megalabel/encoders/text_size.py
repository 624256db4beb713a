"""Lengths of the texts of a data set in tokens and features, for the plan of a training run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["TextSize"]

TOKENS = 12  # assumed for a text of unknown length, a title
_SAMPLE = 256  # texts measured
_LETTERS = 4.0  # characters per token
_PER_WORD = 1.3  # tokens per word
_WORD = re.compile(r"\w+")
_KINDS = ("subwords", "words", "bigrams", "characters")
_GROWTH = (
    0.78,
    0.82,
    0.95,
    0.81,
)  # by kind, measured on program documentation: n features hold n ** this distinct ones


@dataclass(frozen=True)
class TextSize:
    """The mean text of one side.

    ``growth`` is the exponent of distinct features: n subwords (words, word pairs, character n-grams) hold about
    n ** growth distinct ones (Heaps' law).
    """

    characters: float
    words: float
    tokens: float  # subwords
    growth: tuple[float, float, float, float] = _GROWTH  # of subwords, words, bigrams, characters

    @classmethod
    def of_tokens(cls, tokens: float = TOKENS) -> TextSize:
        """Return the size of a text with this many tokens, by usual proportions."""
        return cls(5 * tokens, max(1.0, tokens / _PER_WORD), tokens)

    def times(self, count: float) -> TextSize:
        """Return the size of so many texts, one after the other."""
        return replace(self, characters=count * self.characters, words=count * self.words, tokens=count * self.tokens)

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer | None = None) -> TextSize:
        """Measure a sample of the texts; without a tokenizer, a token counts as four characters.

        >>> size = TextSize.of(["red shoe", "a red shoe"])
        >>> size.characters, size.words
        (9.0, 2.5)
        """
        count = min(_SAMPLE, len(texts))
        sample = [texts[len(texts) * number // count] for number in range(count)]
        if not sample:
            return cls.of_tokens()
        rows = [_WORD.findall(text.lower()) for text in sample]
        words = [word for row in rows for word in row]
        pairs = [pair for row in rows for pair in pairwise(row)]
        whole = [f"<{word}>" for word in words]
        ngrams = [word[at : at + size] for word in whole for size in (3, 4, 5) for at in range(len(word) + 1 - size)]
        letters = sum(map(len, sample)) / count
        tokens = letters / _LETTERS
        if tokenizer is not None:
            tokens = sum(len(row.ids) for row in tokenizer.encode_batch(sample, add_special_tokens=False)) / count
        growth = (_GROWTH[0], _growth(words), _growth(pairs), _growth(ngrams))
        return cls(letters, len(words) / count, max(1.0, tokens), growth)

    def features(self, ngrams: Sequence[int] = (3, 4, 5)) -> dict[str, float]:
        """Return the number of features of each kind; character n-grams include < and > at the ends of a word."""
        letters = max(1.0, (self.characters - self.words + 1) / max(1.0, self.words))
        characters = self.words * sum(max(0.0, letters + 3 - size) for size in ngrams)
        return dict(zip(_KINDS, (self.tokens, self.words, max(0.0, self.words - 1), characters), strict=True))

    def distinct(self, kind: str, total: float, rows: int) -> float:
        """Return how many of ``rows`` table rows ``total`` features of a kind touch, including hash collisions."""
        if total <= 1 or rows == 0:
            return min(total, rows)
        new = total ** self.growth[_KINDS.index(kind)]
        return rows * -math.expm1(-new / rows)


def _growth(features: Sequence[object]) -> float:
    return math.log(max(2, len(set(features)))) / math.log(max(2, len(features))) if len(features) > 8 else 0.9
