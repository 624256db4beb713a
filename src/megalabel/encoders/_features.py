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
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

__all__ = ["SPLITS", "CutTexts", "Features", "piece_pattern"]

SPLITS = ("scripts", "spaces")  # where words end
_VERSION = 1  # of the assignment of rows
_LONGEST = 40  # characters of a word that are cut into n-grams
_MARKS = re.escape(string.punctuation) + "¡§«¶·»¿\u200b\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u301f"
_SIGN, _WORD, _RUN = range(3)  # kinds of pieces
_NO_ROWS = np.empty(0, dtype=np.uint32)
_NO_GRAMS = np.empty(0, dtype=np.uint64), np.zeros(1, dtype=np.int64)


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
        self._lengths = tuple(sorted(set(ngrams)))
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
        from megalabel.encoders._hashes import arrange

        cut = (texts if isinstance(texts, CutTexts) else CutTexts(texts)).pieces(self.split)
        sizes, starts = ((rows["words"], rows["bigrams"], rows["characters"]) for rows in (self.sizes, self.starts))
        found = cut.grams(self._lengths) if self.sizes["characters"] else _NO_GRAMS
        fixed = self._fixed(cut)
        return Tokens(*arrange(cut.places, cut.ends, cut.word_of, cut.hashes, fixed, found, sizes, starts))

    def _fixed(self, cut: Pieces) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the features of each distinct piece that are not those of a word, ragged: subwords, those of runs."""
        runs = np.flatnonzero(cut.kind == _RUN)
        if self.tokeniser is None and not len(runs):
            return _NO_ROWS, np.zeros(len(cut.strings) + 1, dtype=np.int64)
        subwords = None if self.tokeniser is None else self.tokeniser.tokenise(cut.strings)
        if subwords is not None and not len(runs):
            return subwords.ids.astype(np.uint32), subwords.offsets
        sizes = np.ones(len(cut.strings), dtype=np.int64)
        rows, of_run, places, sizes[runs] = self.of_runs([cut.plain[run] for run in runs.tolist()])
        owners = runs[of_run]
        if subwords is not None:
            owner = np.repeat(np.arange(len(cut.strings)), subwords.lengths)
            place = np.arange(len(owner)) - subwords.offsets[:-1][owner]
            place = np.where(cut.kind[owner] == _RUN, place * sizes[owner] // subwords.lengths[owner], 0)
            rows = np.concatenate([subwords.ids.astype(np.int64), rows])
            owners, places = np.concatenate([owner, owners]), np.concatenate([place, places])
        order = np.lexsort((places, owners))
        counts = np.bincount(owners, minlength=len(cut.strings))
        return rows[order].astype(np.uint32), np.concatenate([[0], np.cumsum(counts)])

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
            from megalabel.encoders._hashes import grams

            hashes, begin, offsets = grams(*_codes(runs), np.array(self._lengths))
            of_run = np.repeat(np.arange(len(runs)), np.diff(offsets))
            unit_codes = np.fromiter((len(unit) for row in cut for unit in row), dtype=np.int64, count=len(owner))
            beginning = np.repeat(place, unit_codes)  # the character that each code belongs to
            first = np.cumsum([0, *map(len, runs)])[:-1]
            rows.append(self.row("characters", hashes))
            owners.append(of_run)
            places.append(beginning[first[of_run] + begin])
        none = [np.empty(0, dtype=np.int64)]
        return np.concatenate(rows or none), np.concatenate(owners or none), np.concatenate(places or none), sizes


class CutTexts(list[str]):
    """Texts that are cut into pieces once for all features with the same rules."""

    def pieces(self, split: str) -> Pieces:
        """Return the pieces of the texts."""
        known: dict[str, Pieces] = self.__dict__.setdefault("_known", {})
        if split not in known:
            known[split] = Pieces(self, split)
        return known[split]


class Pieces:
    """The words, runs and marks of some texts, each distinct one once, with what all features compute of them."""

    def __init__(self, texts: Sequence[str], split: str) -> None:
        cut, run, mark = piece_pattern(split), _run(split), _mark(split)
        rows = [cut.findall(text) for text in texts]
        numbers = {piece: number for number, piece in enumerate(dict.fromkeys(chain.from_iterable(rows)))}
        self.strings = list(numbers)  # [U] distinct
        self.ends = np.cumsum(np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)))  # [n] of each text
        total = int(self.ends[-1]) if len(rows) else 0
        places = map(numbers.__getitem__, chain.from_iterable(rows))
        self.places = np.fromiter(places, dtype=np.int64, count=total)  # distinct pieces in the order of the texts
        kinds = [
            _RUN if run.match(piece) else _WORD if mark.fullmatch(piece) is None else _SIGN for piece in self.strings
        ]
        self.kind = np.array(kinds, dtype=np.int8)  # [U]
        is_word = self.kind == _WORD  # a run makes no pair with its neighbours
        self.word_of = np.where(is_word, np.cumsum(is_word) - 1, -1)  # [U]
        plain = [piece if piece.isascii() else unicodedata.normalize("NFKC", piece) for piece in self.strings]
        self.plain = [piece.lower() for piece in plain]
        self.hashes = _hash(self.plain)  # [U]
        self._grams: dict[tuple[int, ...], tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}

    def grams(self, lengths: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the hashes of the n-grams of each distinct word, ragged."""
        from megalabel.encoders._hashes import grams

        if lengths not in self._grams:
            words = [piece for piece, word in zip(self.plain, self.word_of.tolist(), strict=True) if word >= 0]
            hashes, _, offsets = grams(*_codes([f"<{word[:_LONGEST]}>" for word in words]), np.array(lengths))
            self._grams[lengths] = hashes, offsets
        return self._grams[lengths]


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
    """Return a 64-bit hash of each string."""
    from megalabel.encoders._hashes import hash_strings

    return hash_strings(*_codes(strings))


def _codes(strings: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the code points of all strings, one after the other, and the length of each."""
    counts = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
    return np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), dtype="<u4"), counts
