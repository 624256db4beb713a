"""Tables with a row per label, in full or half precision."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

__all__ = ["BLOCK", "HALVES", "TableType", "embed_rows", "new_table"]

TableType = Literal["float32", "bfloat16", "float16"]
HALVES = (torch.bfloat16, torch.float16)
BLOCK = 16_384  # rows, or texts, handled at once
_NORMAL = 0.02  # standard deviation of rows that start from a normal distribution


def new_table(
    size: int, dim: int, shard: range | None, *, kind: TableType = "float32", normal: bool = False
) -> nn.Parameter:
    """Return a table with random rows; with ``shard``, only those rows of the full table.

    Rows are Xavier-uniform, or from N(0, 0.02) if ``normal``; a half-precision table has them rounded.
    """
    bound = math.sqrt(3.0) * math.sqrt(2.0 / (size + dim))  # equal to xavier_uniform_ to the last bit
    shard = range(size) if shard is None else shard
    table = torch.empty(len(shard), dim, dtype=getattr(torch, kind))
    for start in range(0, size, BLOCK):  # rows of other processes are drawn and discarded
        rows = torch.empty(min(BLOCK, size - start), dim)
        rows = rows.normal_(std=_NORMAL) if normal else rows.uniform_(-bound, bound)
        first, last = max(start, shard.start), min(start + len(rows), shard.stop)
        if first < last:
            table[first - shard.start : last - shard.start] = rows[first - start : last - start]
    return nn.Parameter(table)


def embed_rows(table: Tensor, pool: Tensor | None, rate: float, *, training: bool) -> Tensor:
    """Return the rows of a pool with a sparse gradient, or all rows with a dense one, after dropout."""
    rows = table if pool is None else embedding(pool, table, sparse=True)
    return dropout(rows, rate, training) if rate else rows
