"""What the row-wise optimisers share: the rows a gradient touches, and state that loads exactly."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from megalabel.errors import SettingError
from megalabel.training._distinct_rows import distinct_rows

__all__ = ["RowOptimiser", "new_state_zeros", "per_row", "touched_rows"]

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


def per_row(numbers: Tensor, values: Tensor) -> Tensor:
    """Shape one number per row [n] so that it broadcasts over values [n, ...]."""
    return numbers.view(-1, *[1] * (values.dim() - 1))


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
        """Load what ``state_dict()`` gave, copied; dtypes stay (torch alone would cast them to the table's)."""
        super().load_state_dict(state_dict)
        places = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        tables = dict(zip(places, chain.from_iterable(group["params"] for group in self.param_groups), strict=True))
        for place, state in state_dict["state"].items():
            table = tables[place]
            self.state[table] = {key: value.detach().to(table.device, copy=True) for key, value in state.items()}


def _state_dtype(table: Tensor) -> torch.dtype:
    return torch.float64 if table.dtype == torch.float64 else torch.float32


def new_state_zeros(table: Tensor, *shape: int) -> Tensor:
    """Return zeros of the state's dtype on the table's device."""
    return torch.zeros(shape, dtype=_state_dtype(table), device=table.device)
