"""Process the rows of a batch in several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeAlias

import torch

__all__ = ["Spread", "row_threads"]

Spread: TypeAlias = Callable[[Callable[[int, int], None], int], None]

_LEAST = 16  # fewer rows are not worth a thread


@contextmanager
def row_threads(rows: int) -> Iterator[Spread]:
    """Yield a function that calls ``work(first, last)`` for all rows, in as many threads as torch uses.

    >>> with row_threads(40) as spread:
    ...     done = []
    ...     spread(lambda first, last: done.extend(range(first, last)), 40)
    >>> sorted(done) == list(range(40))
    True
    """
    threads = min(torch.get_num_threads(), rows // _LEAST)
    if threads < 2:
        yield lambda work, rows: work(0, rows)
        return
    with ThreadPoolExecutor(threads) as pool:

        def spread(work: Callable[[int, int], None], rows: int) -> None:
            edges = [rows * part // threads for part in range(threads + 1)]
            for job in [pool.submit(work, first, last) for first, last in pairwise(edges)]:
                job.result()

        yield spread
