"""Hashes of strings and of their n-grams, and the features of texts put together, compiled by numba."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled
from megalabel.split_mix import STEP, split_mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["arrange", "grams", "hash_strings"]


@compiled
def hash_strings(codes: NDArray[np.uint32], counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash [n] of each string: the mixed sum of its mixed (character, position) pairs.

    ``codes`` are the characters of all strings, one after the other, and ``counts`` [n] their numbers.
    """
    hashes, begin = np.empty(len(counts), dtype=np.uint64), 0
    for string in range(len(counts)):
        total = np.uint64(0)
        for place in range(counts[string]):
            total += split_mix(np.uint64(codes[begin + place]) + np.uint64(place + 1) * STEP)
        hashes[string] = split_mix(total)
        begin += counts[string]
    return hashes


@compiled
def grams(
    codes: NDArray[np.uint32], counts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the hashes of all n-grams, the place each begins at in its string, and the offsets [n + 1] of strings.

    Those of a string are ordered by length, then by place.
    """
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    for string in range(len(counts)):
        offsets[string + 1] = offsets[string]
        for length in lengths:
            offsets[string + 1] += max(0, counts[string] - length + 1)
    hashes, places = np.empty(offsets[-1], dtype=np.uint64), np.empty(offsets[-1], dtype=np.int64)
    begin, size = 0, 0
    for string in range(len(counts)):
        for length in lengths:
            for place in range(counts[string] - length + 1):
                total = np.uint64(length) * STEP
                for offset in range(length):
                    total += split_mix(np.uint64(codes[begin + place + offset]) + np.uint64(offset + 1) * STEP)
                hashes[size], places[size] = split_mix(total), place
                size += 1
        begin += counts[string]
    return hashes, places, offsets


@compiled
def arrange(
    pieces: NDArray[np.int64],
    ends: NDArray[np.int64],
    word_of: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    fixed: tuple[NDArray[np.uint32], NDArray[np.int64]],
    gram_hashes: tuple[NDArray[np.uint64], NDArray[np.int64]],
    sizes: tuple[int, int, int],
    starts: tuple[int, int, int],
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the features of texts, ragged (ids, offsets [n + 1]).

    A piece gives its ``fixed`` features; a word then itself, its n-grams, and the pair it makes with the word before
    it in its text.

    Args:
        pieces: distinct pieces in the order of the texts.
        ends: [n] number of pieces up to the end of each text.
        word_of: [U] number of a distinct piece among words, -1 if it is none.
        hashes: [U] of the distinct pieces.
        fixed: ragged rows of each distinct piece (ids, offsets [U + 1]).
        gram_hashes: ragged, of the n-grams of each word.
        sizes: rows of words, pairs and n-grams in the table, each 0 or a power of two.
        starts: the first row of each of these kinds.
    """
    ids, offsets = np.empty(64, dtype=np.uint32), np.zeros(len(ends) + 1, dtype=np.int64)
    size, place = 0, 0
    for text in range(len(ends)):
        before = -1
        while place < ends[text]:
            piece = pieces[place]
            word, first, last = word_of[piece], fixed[1][piece], fixed[1][piece + 1]
            count = last - first + 2
            if word >= 0 and sizes[2] > 0:
                count += gram_hashes[1][word + 1] - gram_hashes[1][word]
            if size + count > len(ids):
                more = np.empty(max(2 * len(ids), size + count), dtype=np.uint32)
                more[:size] = ids[:size]
                ids = more
            for at in range(first, last):
                ids[size] = fixed[0][at]
                size += 1
            if word >= 0:
                if sizes[0] > 0:
                    ids[size] = starts[0] + np.int64(hashes[piece] & np.uint64(sizes[0] - 1))
                    size += 1
                if sizes[2] > 0:
                    for at in range(gram_hashes[1][word], gram_hashes[1][word + 1]):
                        ids[size] = starts[2] + np.int64(gram_hashes[0][at] & np.uint64(sizes[2] - 1))
                        size += 1
                if sizes[1] > 0 and before >= 0:
                    pair = split_mix(hashes[before] * np.uint64(3) + hashes[piece])
                    ids[size] = starts[1] + np.int64(pair & np.uint64(sizes[1] - 1))
                    size += 1
                before = piece
            place += 1
        offsets[text + 1] = size
    return ids[:size].copy(), offsets
