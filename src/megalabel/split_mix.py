"""Random numbers inside machine code: SplitMix64, whose whole state is one number."""

from __future__ import annotations

import numpy as np

from megalabel.compiled import compiled

__all__ = ["STEP", "split_mix"]

STEP = np.uint64(0x9E3779B97F4A7C15)  # added to the state before each number is drawn


@compiled
def split_mix(state: np.uint64) -> np.uint64:
    """Return the number of a state: every bit spread over all 64 (Steele, Lea and Flood, OOPSLA 2014).

    >>> hex(split_mix(STEP))  # the first number of the generator that starts at 0
    '0xe220a8397b1dcdaf'
    """
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
