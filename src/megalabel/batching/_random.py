"""Random generators that depend only on the position in a run."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from megalabel.errors import SettingError

__all__ = ["generator"]


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return the generator of one position in a run, such as ("pool", epoch, step).

    No state is carried from one position to the next, so a resumed run draws the same
    numbers as one that never stopped, whatever the number of workers.

    >>> bool(generator(7, "pool", 2, 31).random() == generator(7, "pool", 2, 31).random())
    True
    >>> bool(generator(7, "pool", 2, 31).random() == generator(7, "order", 2, 31).random())
    False
    """
    key = tuple(crc32(part.encode()) if isinstance(part, str) else part for part in path)
    if seed < 0 or any(part < 0 for part in key):
        raise SettingError(f"the seed and its path must not be negative: {seed}, {path}")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
