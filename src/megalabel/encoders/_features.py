"""Features of a bag: subwords, words, word pairs and character n-grams, each the index of a table row."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from hashlib import blake2b
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.tokens import Tokeniser, tokenise_in_chunks
from megalabel.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

__all__ = ["Features"]

_VERSION = 1  # of the assignment of rows
_LONGEST = 40  # characters of a word that are cut into n-grams
_MARKS = re.escape(string.punctuation) + "¡§«¶·»¿\u200b\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u301f"
_PIECES = re.compile(rf"[^\s{_MARKS}]+|[{_MARKS}]")  # words, and punctuation marks one by one
_MARK = re.compile(rf"[{_MARKS}]")
_STEP = 0x9E3779B97F4A7C15


class Features:
    """Turn texts into rows of one table: first the vocabulary of a tokenizer, then the hashed kinds.

    A text is cut into words (runs without space or punctuation) and marks. Each gives its
    subwords; each word also gives itself, the pair it makes with the word before it, and
    its character n-grams with < and > at the ends, all in lower case. Words, pairs and
    n-grams take the row ``hash & (size - 1)`` of their part of the table, so a size is
    a power of two; 0 omits the kind. Features follow the order of the text.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, *, words: int, bigrams: int, characters: int, ngrams: Sequence[int]
    ) -> None:
        self.tokeniser = None if tokenizer is None else Tokeniser(tokenizer)
        self.ngrams = sorted(ngrams)
        vocabulary = 0 if tokenizer is None else 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())
        sizes = {"subwords": vocabulary, "words": words, "bigrams": bigrams, "characters": characters}
        self.sizes = sizes  # rows of each kind
        self.starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        self.rows = sum(sizes.values())  # of the whole table

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the table rows of each text."""
        return tokenise_in_chunks(texts, self._chunk)

    def fingerprint(self) -> str:
        """Return a hash of everything the rows of a text depend on."""
        subwords = None if self.tokeniser is None else self.tokeniser.fingerprint()
        document = json.dumps(["bag", _VERSION, self.sizes, self.ngrams, subwords])
        return blake2b(document.encode(), digest_size=16).hexdigest()

    def _chunk(self, texts: Sequence[str]) -> Tokens:
        """Compute the features of every distinct piece once, then arrange them text by text."""
        rows = [_PIECES.findall(text) for text in texts]
        numbers = {piece: number for number, piece in enumerate(dict.fromkeys(chain.from_iterable(rows)))}
        distinct = _Pieces(self, list(numbers))
        counts = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        pieces = np.fromiter(map(numbers.__getitem__, chain.from_iterable(rows)), dtype=np.int64, count=counts.sum())
        second, bigrams = self._bigrams(distinct, pieces, np.repeat(np.arange(len(texts)), counts))
        features = distinct.features.take(pieces)
        lengths = features.lengths.copy()
        lengths[second] += 1  # a pair follows the features of its second word
        ends = np.cumsum(lengths)
        ids = np.empty(int(lengths.sum()), dtype=np.uint32)
        is_feature = np.ones(len(ids), dtype=bool)
        is_feature[ends[second] - 1] = False
        ids[is_feature] = features.ids
        ids[~is_feature] = bigrams
        ends = np.concatenate([[0], ends])
        return Tokens(ids, ends[np.concatenate([[0], np.cumsum(counts)])])

    def _bigrams(
        self, distinct: _Pieces, pieces: NDArray[np.int64], texts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of words that follow another word, and the row of each pair."""
        if not self.sizes["bigrams"]:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        words = np.flatnonzero(distinct.is_word[pieces])
        pairs = np.flatnonzero(texts[words[1:]] == texts[words[:-1]])
        first, second = words[pairs], words[pairs + 1]
        hashes = _mix(distinct.hashes[pieces[first]] * np.uint64(3) + distinct.hashes[pieces[second]])
        return second, self.row("bigrams", hashes)

    def row(self, kind: str, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the table rows of hashed features."""
        rows: NDArray[np.int64] = (hashes & np.uint64(self.sizes[kind] - 1)).astype(np.int64)
        return rows + self.starts[kind]

    def of_words(self, words: list[str], hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of words and of their n-grams, and the number of the word of each."""
        rows, owners = [], []
        if self.sizes["words"]:
            rows.append(self.row("words", hashes))
            owners.append(np.arange(len(words)))
        if self.sizes["characters"]:
            codes, counts = _codes([f"<{word[:_LONGEST]}>" for word in words])
            ends, owner = np.repeat(np.cumsum(counts), counts), np.repeat(np.arange(len(words)), counts)
            sums = np.zeros(len(codes), dtype=np.uint64)
            for offset in range(self.ngrams[-1]):  # sums[i] covers characters i to i + offset
                sums[: max(0, len(codes) - offset)] += _mix(codes[offset:] + _times(offset + 1))
                if offset + 1 in self.ngrams:
                    inside = np.flatnonzero(np.arange(len(codes)) + offset < ends)
                    rows.append(self.row("characters", _mix(sums[inside] + _times(offset + 1))))
                    owners.append(owner[inside])
        none = [np.empty(0, dtype=np.int64)]
        return np.concatenate(rows or none), np.concatenate(owners or none)


class _Pieces:
    """Distinct pieces with all their features but pairs."""

    def __init__(self, features: Features, pieces: list[str]) -> None:
        self.is_word = np.fromiter((_MARK.fullmatch(piece) is None for piece in pieces), dtype=bool, count=len(pieces))
        plain = [piece if piece.isascii() else unicodedata.normalize("NFKC", piece) for piece in pieces]
        plain = [piece.lower() for piece in plain]
        self.hashes = _hash(plain)
        numbers = np.flatnonzero(self.is_word)
        rows, owners = features.of_words([plain[number] for number in numbers.tolist()], self.hashes[numbers])
        owners = numbers[owners]
        if features.tokeniser is not None:
            subwords = features.tokeniser.tokenise(pieces)
            rows = np.concatenate([subwords.ids.astype(np.int64), rows])
            owners = np.concatenate([np.repeat(np.arange(len(pieces)), subwords.lengths), owners])
        counts = np.bincount(owners, minlength=len(pieces))
        self.features = Tokens(
            rows[np.argsort(owners, kind="stable")].astype(np.uint32), np.concatenate([[0], np.cumsum(counts)])
        )


def _hash(strings: list[str]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each string: the mixed sum of its mixed (character, position) pairs."""
    codes, counts = _codes(strings)
    ends = np.cumsum(counts)
    positions = np.arange(len(codes)) - np.repeat(ends - counts, counts) + 1
    terms = _mix(codes + positions.astype(np.uint64) * np.uint64(_STEP))
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])  # modulo 2 ** 64
    return _mix(sums[ends] - sums[ends - counts])


def _codes(strings: list[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the code points of all strings, one after the other, and the length of each."""
    counts = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
    codes = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return codes.astype(np.uint64), counts


def _times(number: int) -> np.uint64:
    return np.uint64(number * _STEP % 2**64)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all 64 (the finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
