"""A vocabulary of made-up words, one for every number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Words"]

_SYLLABLES = np.array([[ord(c), ord(v)] for c in "bcdfghjklmnpqrstvwxz" for v in "aeiou"], dtype=np.uint8)  # [100, 2]
_STRIDE = 61_803_398_873  # prime to 10, so that number * stride visits every word once


class Words:
    """Words 0 .. size - 1: syllables such as "ka" and "du", all of one length, neighbours not alike.

    >>> Words(1_000).join(np.array([[0, 1], [2, 999]]))
    ['bababa kuwoso', 'tutime milehi']
    """

    def __init__(self, size: int) -> None:
        self.syllables = max(3, -(-len(str(size - 1)) // 2))

    def join(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return a text for each row of ``numbers`` [n, m]: its words with spaces between."""
        rows, columns = numbers.shape
        if rows == 0 or columns == 0:
            return [""] * rows
        rest = numbers * (_STRIDE % 100**self.syllables) % 100**self.syllables
        letters = np.full((rows, columns, 2 * self.syllables + 1), ord(" "), dtype=np.uint8)
        for place in range(self.syllables - 1, -1, -1):
            rest, digits = np.divmod(rest, 100)
            letters[:, :, 2 * place : 2 * place + 2] = _SYLLABLES[digits]
        width = letters[0].size
        joined = letters.tobytes().decode("ascii")
        return [joined[start : start + width - 1] for start in range(0, rows * width, width)]
