"""Optimisers: one for each group of parameters, with its own kind and rate.

Dense parts (encoder, projections) train with fused AdamW. Tables with a row per label or
per token train with :class:`RowAdagrad` or :class:`LazyAdamW`, which take sparse gradients
and visit only the rows a step touches: the cost of a step does not grow with the table.
"""

from __future__ import annotations

from megalabel.training.optim.gradients import clip_gradients, distinct_rows, sum_gradients
from megalabel.training.optim.make_optimisers import make_optimisers
from megalabel.training.optim.row_wise import LazyAdamW, RowAdagrad
from megalabel.training.optim.state import flatten_state, restore_state, row_state

__all__ = [
    "LazyAdamW",
    "RowAdagrad",
    "clip_gradients",
    "distinct_rows",
    "flatten_state",
    "make_optimisers",
    "restore_state",
    "row_state",
    "sum_gradients",
]
