"""The numbers are those of SplitMix64."""

import numpy as np

from megalabel.split_mix import STEP, split_mix

MASK = 2**64 - 1


def plain(state):
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
    return state ^ (state >> 31)


def test_equals_python_integers():
    state = 42
    for _ in range(100):
        state = (state + int(STEP)) & MASK
        assert int(split_mix(np.uint64(state))) == plain(state)
