"""Optimisers of tables, whose steps visit only the rows that a gradient touches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from megalabel.errors import SettingError
from megalabel.training.optim.gradients import distinct_rows

__all__ = ["BlockSGD", "LazyAdamW", "RowAdagrad", "RowOptimiser", "round_stochastically", "touched_rows"]

_HALVES = (torch.float16, torch.bfloat16)
BLOCK = 16_384  # rows per piece: bounds the memory of an update when every row is touched


def touched_rows(gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (rows [n] ascending, their gradient [n, ...]) of a table, a block of rows at a time.

    A sparse gradient touches the rows it lists, each yielded once with the sum of its
    entries; a dense one touches the rows that are not all zero. The values of a sparse
    gradient are views: do not write to them.

    >>> indices, values = torch.tensor([[2, 0, 2]]), torch.ones(3, 2)
    >>> [(rows, values)] = touched_rows(torch.sparse_coo_tensor(indices, values, (4, 2), check_invariants=True))
    >>> rows.tolist(), values.tolist()
    ([0, 2], [[1.0, 1.0], [2.0, 2.0]])
    """
    if gradient.is_sparse:
        if gradient.sparse_dim() != 1:
            raise SettingError(
                f"the gradient of a table is sparse in {gradient.sparse_dim()} dimensions",
                remedy="make it with embedding(..., sparse=True), sparse in the rows only",
            )
        gradient = distinct_rows(gradient)
        rows, values = gradient.indices()[0], gradient.values()
        for begin in range(0, len(rows), BLOCK):
            yield rows[begin : begin + BLOCK], values[begin : begin + BLOCK]
    elif gradient.numel():
        largest = torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), ord=torch.inf, dim=1)
        rows = largest.ne(0).nonzero()[:, 0]
        for begin in range(0, len(rows), BLOCK):
            block = rows[begin : begin + BLOCK]
            yield block, gradient.index_select(0, block)


class RowOptimiser(Optimizer):
    """An optimiser whose step visits only the rows that the gradient of a table touches.

    Rows run along the first dimension; a vector is a table of single numbers. State is
    float32, or float64 for float64 tables, and loads with the dtype it was saved with.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient, block by block."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None:
                    continue
                if table.dim() == 0:
                    raise SettingError("a row-wise optimiser was given a single number", remedy="use adamw for it")
                if not self.state[table]:
                    self.state[table].update(self.new_state(table))
                for rows, values in touched_rows(table.grad):
                    self.update(table, rows, values.to(_state_dtype(table)), self.state[table], group)
        return loss

    @abstractmethod
    def new_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the state of a table before its first update."""

    @abstractmethod
    def update(
        self, table: Tensor, rows: Tensor, values: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        """Update distinct rows [n] of the table and their state from their gradient values [n, ...]."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a copy of a ``state_dict()`` and keep its dtypes (torch alone would cast them to the table's)."""
        super().load_state_dict(state_dict)
        places = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        tables = dict(zip(places, chain.from_iterable(group["params"] for group in self.param_groups), strict=True))
        for place, state in state_dict["state"].items():
            table = tables[place]
            self.state[table] = {key: value.detach().to(table.device, copy=True) for key, value in state.items()}


class RowAdagrad(RowOptimiser):
    r"""Adagrad with one accumulator per row, for tables of millions of rows.

    For every row r that the gradient g touches, of width d:

        a_r <- a_r + mean_j g_rj^2
        w_r <- w_r - lr (g_r / (sqrt(a_r) + eps) + weight_decay w_r)

    Other rows and their state do not change at all, so weight decay acts on a row only when
    it is touched. The state of [n, d] is n numbers, where Adam keeps 2 n d.
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
        return {"sum": _zeros(table, len(table))}

    def update(
        self, table: Tensor, rows: Tensor, values: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        """Add to the accumulators of the rows, then step."""
        flat = values.reshape(len(rows), -1)
        squares = torch.linalg.vector_norm(flat, dim=1).square_().div_(flat.shape[1])
        state["sum"].index_add_(0, rows, squares)
        scale = state["sum"].index_select(0, rows).sqrt_().add_(group["eps"])
        change = values / _per_row(scale, values)
        if group["weight_decay"]:
            change.add_(table.index_select(0, rows), alpha=group["weight_decay"])
        _subtract(table, rows, change, group["lr"])


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
            "exp_avg": _zeros(table, *table.shape),
            "exp_avg_sq": _zeros(table, *table.shape),
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
        scale = second.div_(_per_row(long, values)).sqrt_().add_(group["eps"]).mul_(_per_row(short, values))
        change = first.div_(scale)
        if group["weight_decay"]:
            change.add_(table.index_select(0, rows), alpha=group["weight_decay"])
        _subtract(table, rows, change, group["lr"])


class BlockSGD(Optimizer):
    r"""Momentum SGD on half-precision tables, block by block; equals ``torch.optim.SGD`` but for rounding.

        b <- momentum b + g + weight_decay w
        w <- w - lr b

    computed in float32 for a block of rows at a time. The momentum b has the type of the table, so that table,
    gradient and state take half the memory of float32; both w and b are rounded by :func:`round_stochastically`.
    Every step visits every row, as in Renee (Jain et al., MLSys 2023), whose gradient is dense.

    >>> table = torch.nn.Parameter(torch.zeros(2, 1, dtype=torch.bfloat16))
    >>> optimiser = BlockSGD([table], lr=0.5, momentum=0.5)
    >>> for _ in range(2):
    ...     table.grad = torch.tensor([[1.0], [0.0]], dtype=torch.bfloat16)
    ...     optimiser.step()
    >>> table.tolist()
    [[-1.25], [0.0]]
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, *, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, table.grad, group)
        return loss

    def _update(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        gradient = distinct_rows(gradient) if gradient.is_sparse else gradient
        momentum, decay = group["momentum"], group["weight_decay"]
        if momentum and not self.state[table]:
            self.state[table]["momentum_buffer"] = torch.zeros_like(table)
        for begin in range(0, len(table), BLOCK):
            block = slice(begin, begin + BLOCK)
            weights = table[block].to(_state_dtype(table), copy=True)
            change = _dense_block(gradient, block, weights)
            if decay:
                change.add_(weights, alpha=decay)
            if momentum:
                buffer = self.state[table]["momentum_buffer"][block]
                change.add_(buffer, alpha=momentum)
                buffer.copy_(round_stochastically(change, table.dtype))
            table[block] = round_stochastically(weights.sub_(change, alpha=group["lr"]), table.dtype)


def round_stochastically(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float32 to float16 or bfloat16, up or down at random, so that the mean of the result is the value.

    A value goes to the nearer of its two neighbours with the larger chance (Gupta et al. 2015, "Deep learning with
    limited numerical precision", section 3): many steps that are each too small to move a half-precision number add
    up. Draws from torch's generator. Values are clipped to the largest number of the type. Other types are not
    rounded.

    >>> torch.manual_seed(0) and None
    >>> steps = torch.full((10_000,), 1 + 2**-10)  # bfloat16 has no number between 1 and 1 + 2**-7
    >>> rounded = round_stochastically(steps, torch.bfloat16)
    >>> sorted(set(rounded.tolist())), round((rounded.double().mean() - 1).item() * 2**10)
    ([1.0, 1.0078125], 1)
    """
    if dtype not in _HALVES:
        return values.to(dtype)
    largest = torch.finfo(dtype).max
    values = values.clamp(-largest, largest)
    dropped = 16 if dtype == torch.bfloat16 else 13  # bits of the mantissa
    noise = torch.randint(1 << dropped, values.shape, dtype=torch.int32, device=values.device)
    rounded = (values.view(torch.int32) + noise).bitwise_and_(-(1 << dropped)).view(torch.float32)
    if dtype == torch.float16:  # below 2**-14 its numbers lie 2**-24 apart
        small = (values * 2.0**24 + noise * 2.0**-13).floor_() * 2.0**-24
        rounded = torch.where(values.abs() < 2.0**-14, small, rounded)
    return rounded.clamp_(-largest, largest).to(dtype)


def _subtract(table: Tensor, rows: Tensor, change: Tensor, lr: float) -> None:
    """Subtract lr x change from rows of a table; a half-precision table is rounded stochastically."""
    if table.dtype in _HALVES:
        exact = table.index_select(0, rows).float().sub_(change, alpha=lr)
        table.index_copy_(0, rows, round_stochastically(exact, table.dtype))
    else:
        table.index_add_(0, rows, change.to(table.dtype), alpha=-lr)


def _dense_block(gradient: Tensor, block: slice, like: Tensor) -> Tensor:
    """Return a copy of rows of a gradient in the type of ``like``; a sparse one has distinct ascending rows."""
    if not gradient.is_sparse:
        return gradient[block].to(like.dtype, copy=True)
    rows = gradient.indices()[0]
    first, last = torch.searchsorted(rows, torch.tensor([block.start, block.stop], device=rows.device)).tolist()
    values = gradient.values()[first:last].to(like.dtype)
    return torch.zeros_like(like).index_copy_(0, rows[first:last] - block.start, values)


def _per_row(numbers: Tensor, values: Tensor) -> Tensor:
    """Shape one number per row [n] so that it broadcasts over values [n, ...]."""
    return numbers.view(-1, *[1] * (values.dim() - 1))


def _state_dtype(table: Tensor) -> torch.dtype:
    return torch.float64 if table.dtype == torch.float64 else torch.float32


def _zeros(table: Tensor, *shape: int) -> Tensor:
    """Return zeros of the state's dtype on the table's device."""
    return torch.zeros(shape, dtype=_state_dtype(table), device=table.device)
