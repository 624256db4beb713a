"""Run a function on blocks of rows in several threads."""

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
    """Return work(start, stop) for every block of ``range(total)``, in order, with as many threads as torch uses.

    A single block runs in the calling thread: starting another takes longer than a query.
    """
    if 0 < total <= block:
        return [work(0, total)]
    with (
        ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool,
        progress(what, total=total, unit=unit) as step,
    ):
        futures = [pool.submit(work, start, min(start + block, total)) for start in range(0, total, block)]
        results = []
        try:
            for number, future in enumerate(futures):
                results.append(future.result())
                step(min(block, total - number * block))
        finally:
            for future in futures:
                future.cancel()
    return results
