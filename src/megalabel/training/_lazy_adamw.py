"""AdamW that visits only the rows a gradient touches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from megalabel.training._touched_rows import RowOptimiser, new_state_zeros, per_row

__all__ = ["LazyAdamW"]


class LazyAdamW(RowOptimiser):
    r"""AdamW on the touched rows of a table, each row with its own count of steps.

    For every row r that the gradient g touches:

        t_r <- t_r + 1
        m_r <- beta_1 m_r + (1 - beta_1) g_r
        v_r <- beta_2 v_r + (1 - beta_2) g_r^2
        w_r <- w_r - lr (m_r / (1 - beta_1^t_r) / (sqrt(v_r / (1 - beta_2^t_r)) + eps) + weight_decay w_r)

    Rows that are not touched keep weights and moments, so a row moves exactly as under
    AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
    algorithm 2) run on that row alone over the steps that touch it. Bias correction
    counts the row's own steps: with the count of all steps a rare row's first update
    would be about (1 - beta_1) / sqrt(1 - beta_2), three times, too large. Equals AdamW
    when every step touches every row. The state of [n, d] is 2 n d + n numbers.

    Gradients may be sparse in the rows (a row listed several times counts once, with the
    sum) or dense (rows of zeros are not touched).

    >>> table = torch.nn.Parameter(torch.zeros(3, 2))
    >>> optimiser = LazyAdamW([table], lr=0.5)
    >>> table.grad = torch.tensor([[0.0, 0.0], [3.0, -3.0], [0.0, 0.0]])
    >>> optimiser.step()
    >>> table.detach().round(decimals=3).tolist()
    [[0.0, 0.0], [-0.5, 0.5], [0.0, 0.0]]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def new_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return zero moments of the table's shape and a zero count per row."""
        return {
            "step": torch.zeros(len(table), dtype=torch.int32, device=table.device),
            "exp_avg": new_state_zeros(table, *table.shape),
            "exp_avg_sq": new_state_zeros(table, *table.shape),
        }

    def update(
        self, table: Tensor, rows: Tensor, values: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        """Advance count and moments of the rows, then step."""
        count = state["step"].index_select(0, rows).add_(1)
        state["step"].index_copy_(0, rows, count)
        beta_1, beta_2 = group["betas"]
        first = state["exp_avg"].index_select(0, rows).lerp_(values, 1 - beta_1)
        state["exp_avg"].index_copy_(0, rows, first)
        second = state["exp_avg_sq"].index_select(0, rows).mul_(beta_2).addcmul_(values, values, value=1 - beta_2)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        exact = count.to(torch.float32 if count.device.type == "mps" else torch.float64)  # MPS has no float64
        short, long = ((1 - beta**exact).to(values.dtype) for beta in (beta_1, beta_2))
        scale = second.div_(per_row(long, values)).sqrt_().add_(group["eps"]).mul_(per_row(short, values))
        change = first.div_(scale)
        if group["weight_decay"]:
            change.add_(table.index_select(0, rows), alpha=group["weight_decay"])
        table.index_add_(0, rows, change.to(table.dtype), alpha=-group["lr"])
