"""Features of a bag: subwords, words, word pairs and character n-grams, each the index of a table row."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from functools import cache
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.tokens import Tokeniser, tokenise_in_chunks
from megalabel.encoders._scripts import FULL_MARKS, NO_SPACES, run_pattern, units
from megalabel.errors import SettingError, nearest
from megalabel.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

__all__ = ["SPLITS", "Features", "piece_pattern"]

SPLITS = ("scripts", "spaces")  # where words end
_VERSION = 1  # of the assignment of rows
_LONGEST = 40  # characters of a word that are cut into n-grams
_MARKS = re.escape(string.punctuation) + "¡§«¶·»¿\u200b\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u301f"
_STEP = 0x9E3779B97F4A7C15
_SIGN, _WORD, _RUN = range(3)  # kinds of pieces


class Features:
    """Turn texts into rows of one table: first the vocabulary of a tokenizer, then the hashed kinds.

    A text is cut into words (runs without space or punctuation) and marks. Each gives its
    subwords; each word also gives itself, the pair it makes with the word before it, and
    its character n-grams with < and > at the ends, all in lower case. Words, pairs and
    n-grams take the row ``hash & (size - 1)`` of their part of the table, so a size is
    a power of two; 0 omits the kind. Features follow the order of the text.

    With ``split="scripts"``, a run of a script without spaces (Chinese, Japanese, Thai, Lao,
    Khmer, Burmese, ...) or of emoji is no word: its words are its characters, with their
    combining marks, and the pairs of neighbouring characters; its n-grams have no ends. With
    ``split="spaces"`` such a run is one word, whatever its length.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        *,
        words: int,
        bigrams: int,
        characters: int,
        ngrams: Sequence[int],
        split: str = "scripts",
    ) -> None:
        if split not in SPLITS:
            raise SettingError(f"split is {split!r}", remedy=nearest(split, SPLITS))
        self.split = split
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
        split = [] if self.split == "spaces" else [self.split]  # the only one there was once
        document = json.dumps(["bag", _VERSION, self.sizes, self.ngrams, subwords, *split])
        return blake2b(document.encode(), digest_size=16).hexdigest()

    def _chunk(self, texts: Sequence[str]) -> Tokens:
        """Compute the features of every distinct piece once, then arrange them text by text."""
        cut = piece_pattern(self.split)
        rows = [cut.findall(text) for text in texts]
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

    def of_runs(
        self, runs: list[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of runs without spaces, the number of the run and of the character each begins with.

        The last array [runs] holds the characters of each run.
        """
        cut = [units(run) for run in runs]
        sizes = np.fromiter(map(len, cut), dtype=np.int64, count=len(cut))
        owner = np.repeat(np.arange(len(runs)), sizes)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows, owners, places = [], [], []
        if self.sizes["words"]:
            pairs = place + 1 < sizes[owner]
            strings = [unit for row in cut for unit in row]
            strings += [first + second for row in cut for first, second in pairwise(row)]
            rows.append(self.row("words", _hash(strings)))
            owners += [owner, owner[pairs]]
            places += [place, place[pairs]]
        if self.sizes["characters"]:
            codes, counts = _codes(runs)
            unit_codes = np.fromiter((len(unit) for row in cut for unit in row), dtype=np.int64, count=len(owner))
            beginning = np.repeat(place, unit_codes)  # the character that each code belongs to
            for hashes, inside, owned in self._ngrams(codes, counts):
                rows.append(hashes)
                owners.append(owned)
                places.append(beginning[inside])
        none = [np.empty(0, dtype=np.int64)]
        return np.concatenate(rows or none), np.concatenate(owners or none), np.concatenate(places or none), sizes

    def of_words(self, words: list[str], hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of words and of their n-grams, and the number of the word of each."""
        rows, owners = [], []
        if self.sizes["words"]:
            rows.append(self.row("words", hashes))
            owners.append(np.arange(len(words)))
        if self.sizes["characters"]:
            codes, counts = _codes([f"<{word[:_LONGEST]}>" for word in words])
            for ngrams, _, owned in self._ngrams(codes, counts):
                rows.append(ngrams)
                owners.append(owned)
        none = [np.empty(0, dtype=np.int64)]
        return np.concatenate(rows or none), np.concatenate(owners or none)

    def _ngrams(
        self, codes: NDArray[np.uint64], counts: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield, for each length, the rows of all n-grams, where each begins in the codes, and in which string."""
        ends, owner = np.repeat(np.cumsum(counts), counts), np.repeat(np.arange(len(counts)), counts)
        sums = np.zeros(len(codes), dtype=np.uint64)
        for offset in range(self.ngrams[-1]):  # sums[i] covers characters i to i + offset
            sums[: max(0, len(codes) - offset)] += _mix(codes[offset:] + _times(offset + 1))
            if offset + 1 in self.ngrams:
                inside = np.flatnonzero(np.arange(len(codes)) + offset < ends)
                yield self.row("characters", _mix(sums[inside] + _times(offset + 1))), inside, owner[inside]


class _Pieces:
    """Distinct pieces with all their features but pairs."""

    def __init__(self, features: Features, pieces: list[str]) -> None:
        run, mark = _run(features.split), _mark(features.split)
        kinds = [_RUN if run.match(piece) else _WORD if mark.fullmatch(piece) is None else _SIGN for piece in pieces]
        kind = np.array(kinds, dtype=np.int8)
        self.is_word = kind == _WORD  # a run makes no pair with its neighbours
        plain = [piece if piece.isascii() else unicodedata.normalize("NFKC", piece) for piece in pieces]
        plain = [piece.lower() for piece in plain]
        self.hashes = _hash(plain)
        numbers = np.flatnonzero(self.is_word)
        rows, owners = features.of_words([plain[number] for number in numbers.tolist()], self.hashes[numbers])
        owners = numbers[owners]
        places = np.zeros(len(owners), dtype=np.int64)  # in the piece; those of a word stay in the order of the kinds
        numbers, sizes = np.flatnonzero(kind == _RUN), np.ones(len(pieces), dtype=np.int64)
        if len(numbers):
            more, of_run, begin, sizes[numbers] = features.of_runs([plain[number] for number in numbers.tolist()])
            rows, owners = np.concatenate([rows, more]), np.concatenate([owners, numbers[of_run]])
            places = np.concatenate([places, begin])
        if features.tokeniser is not None:
            subwords = features.tokeniser.tokenise(pieces)
            rows = np.concatenate([subwords.ids.astype(np.int64), rows])
            owner = np.repeat(np.arange(len(pieces)), subwords.lengths)
            place = np.arange(len(owner)) - subwords.offsets[:-1][owner]
            place = np.where(kind[owner] == _RUN, place * sizes[owner] // subwords.lengths[owner], 0)
            owners, places = np.concatenate([owner, owners]), np.concatenate([place, places])
        counts = np.bincount(owners, minlength=len(pieces))
        order = np.lexsort((places, owners)) if len(numbers) else np.argsort(owners, kind="stable")
        self.features = Tokens(rows[order].astype(np.uint32), np.concatenate([[0], np.cumsum(counts)]))


@cache
def piece_pattern(split: str) -> re.Pattern[str]:
    """Return what finds the words and runs of a text, and its punctuation marks one by one."""
    if split == "spaces":
        return re.compile(rf"[^\s{_MARKS}]+|[{_MARKS}]")
    marks = _marks(split)
    return re.compile(rf"{run_pattern()}|[^\s{marks}{NO_SPACES}]+|[{marks}]|\S")


def _marks(split: str) -> str:
    """Return the punctuation marks, as they stand in a set of a regular expression."""
    return _MARKS + (FULL_MARKS if split == "scripts" else "")


@cache
def _mark(split: str) -> re.Pattern[str]:
    return re.compile(f"[{_marks(split)}]")


@cache
def _run(split: str) -> re.Pattern[str]:
    """Return what a piece begins with that is a run without spaces; nothing does if words end at spaces only."""
    return re.compile("(?!)" if split == "spaces" else f"(?![{_marks(split)}])[{NO_SPACES}]")


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
