"""How blocks of work share the cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from megalabel.progress import progress

__all__ = ["in_blocks"]

Result = TypeVar("Result")


def in_blocks(
    work: Callable[[int, int], Result], total: int, block: int, what: str, unit: str = "rows"
) -> list[Result]:
    """Return work(start, stop) of every block of 0 to ``total``, in order, as many at a time as torch has threads.

    A single block is done by the thread that asks: starting another takes longer than a query.
    """
    if 0 < total <= block:
        return [work(0, total)]
    with (
        ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool,
        progress(what, total=total, unit=unit) as step,
    ):
        waiting = [pool.submit(work, start, min(start + block, total)) for start in range(0, total, block)]
        results = []
        try:
            for place, one in enumerate(waiting):
                results.append(one.result())
                step(min(block, total - place * block))
        finally:
            for one in waiting:
                one.cancel()
    return results
