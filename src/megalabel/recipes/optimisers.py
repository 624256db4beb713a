"""Settings of the optimisers: one class for each kind, with the settings that kind has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from megalabel.settings import Settings, one_of

__all__ = [
    "AdamWSettings",
    "LazyAdamWSettings",
    "Optimiser",
    "OptimiserSettings",
    "OptionalOptimiser",
    "RowAdagradSettings",
    "SgdSettings",
]

Rate = Annotated[float, Field(gt=0, le=3e38)]  # the largest float32 is little more
Finite = Annotated[float, Field(ge=0, le=3e38)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class Optimiser(Settings):
    """How one group of parameters is trained.

    Weight decay is decoupled except for sgd, and never applies to vectors, single numbers or biases.
    """

    kind: str
    lr: Rate
    weight_decay: Finite = 0.0

    @property
    def takes_sparse(self) -> bool:
        """Whether it can train a table of which a step touches some rows only."""
        return True

    def rowwise(self) -> Optimiser:
        """Return the optimiser of tables whose settings follow these: lazy_adamw with the same rate and decay."""
        return LazyAdamWSettings(lr=self.lr, weight_decay=self.weight_decay)

    def state_numbers(self, rows: int, width: int) -> int:
        """Return how many numbers of state a table [rows, width] needs."""
        raise NotImplementedError

    def state_bytes(self, rows: int, width: int, item: int) -> int:
        """Return the bytes of the state of a table whose numbers have ``item`` bytes: float32, whatever they have."""
        return 4 * self.state_numbers(rows, width)


class AdamWSettings(Optimiser):
    """AdamW on dense gradients, fused where torch has it."""

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Rate = 1e-8

    @property
    def takes_sparse(self) -> bool:
        """No: it needs a gradient of every row."""
        return False

    def rowwise(self) -> Optimiser:
        """Return lazy_adamw with the same settings."""
        return LazyAdamWSettings(**self.model_dump(exclude={"kind"}))

    def state_numbers(self, rows: int, width: int) -> int:
        """Return two numbers for each weight."""
        return 2 * rows * width


class LazyAdamWSettings(AdamWSettings):
    """AdamW on the rows that a step touches; see :class:`megalabel.training.optim.LazyAdamW`."""

    kind: Literal["lazy_adamw"] = "lazy_adamw"  # type: ignore[assignment]

    @property
    def takes_sparse(self) -> bool:
        """Whether it can train a table of which a step touches some rows only."""
        return True

    def state_numbers(self, rows: int, width: int) -> int:
        """Return two numbers for each weight, and one for each row."""
        return 2 * rows * width + rows


class RowAdagradSettings(Optimiser):
    """Adagrad with one accumulator per row; see :class:`megalabel.training.optim.RowAdagrad`."""

    kind: Literal["row_adagrad"] = "row_adagrad"
    eps: Rate = 1e-8

    def state_numbers(self, rows: int, width: int) -> int:
        """Return one number for each row."""
        return rows


class SgdSettings(Optimiser):
    """Stochastic gradient descent with momentum; weight decay is part of the gradient."""

    kind: Literal["sgd"] = "sgd"
    momentum: Decay = 0.9

    @property
    def takes_sparse(self) -> bool:
        """Only without momentum and decay, which concern every row."""
        return not self.momentum and not self.weight_decay

    def state_numbers(self, rows: int, width: int) -> int:
        """Return one number for each weight, none without momentum."""
        return rows * width if self.momentum else 0

    def state_bytes(self, rows: int, width: int, item: int) -> int:
        """Return the bytes of a momentum of the type of the table."""
        return item * self.state_numbers(rows, width)


_KINDS: dict[str, type[Optimiser]] = {
    "adamw": AdamWSettings, "row_adagrad": RowAdagradSettings, "lazy_adamw": LazyAdamWSettings, "sgd": SgdSettings,
}  # fmt: skip

if TYPE_CHECKING:
    OptimiserSettings = Optimiser
    OptionalOptimiser = Optimiser | None
else:
    OptimiserSettings = one_of(lambda: _KINDS, default="adamw")
    OptionalOptimiser = one_of(lambda: _KINDS, default="adamw", optional=True)
