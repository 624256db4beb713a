"""Row-wise Adagrad: one number of state per row of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from megalabel.training._touched_rows import RowOptimiser, new_state_zeros, per_row

__all__ = ["RowAdagrad"]


class RowAdagrad(RowOptimiser):
    r"""Adagrad with one accumulator per row, for tables of millions of rows.

    For every row r that the gradient g touches, of width d:

        a_r <- a_r + mean_j g_rj^2
        w_r <- w_r - lr (g_r / (sqrt(a_r) + eps) + weight_decay w_r)

    Other rows, their state included, stay bit for bit as they are; so weight decay acts on a
    row when it is touched. The state of [n, d] is n numbers, where Adam keeps 2 n d.
    Adagrad is from Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online
    Learning and Stochastic Optimization", JMLR 2011; sharing an accumulator within a row
    is the habit of recommendation models with large embedding tables.

    Gradients may be sparse in the rows (``embedding(..., sparse=True)``; a row listed
    several times counts once, with the sum) or dense (rows of zeros are not touched).

    >>> table = torch.nn.Parameter(torch.zeros(3, 2))
    >>> optimiser = RowAdagrad([table], lr=0.5)
    >>> table.grad = torch.tensor([[0.0, 0.0], [3.0, -3.0], [0.0, 0.0]])
    >>> optimiser.step()
    >>> table.detach().round(decimals=3).tolist()
    [[0.0, 0.0], [-0.5, 0.5], [0.0, 0.0]]
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 0.01, *, eps: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": weight_decay})

    def new_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return one zero per row."""
        return {"sum": new_state_zeros(table, len(table))}

    def update(
        self, table: Tensor, rows: Tensor, values: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        """Add to the accumulators of the rows, then step."""
        flat = values.reshape(len(rows), -1)
        squares = torch.linalg.vector_norm(flat, dim=1).square_().div_(flat.shape[1])
        state["sum"].index_add_(0, rows, squares)
        scale = state["sum"].index_select(0, rows).sqrt_().add_(group["eps"])
        change = values / per_row(scale, values)
        if group["weight_decay"]:
            change.add_(table.index_select(0, rows), alpha=group["weight_decay"])
        table.index_add_(0, rows, change.to(table.dtype), alpha=-group["lr"])
