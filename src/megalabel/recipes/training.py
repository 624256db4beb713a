"""Settings of the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from megalabel.errors import nearest
from megalabel.metrics.evaluate import METRICS
from megalabel.recipes.optimisers import OptimiserSettings, OptionalOptimiser
from megalabel.settings import Fraction, NonNegativeInt, PositiveFloat, Settings

__all__ = ["AveragingSettings", "Training"]


class AveragingSettings(Settings):
    """Averages of weights over steps: :class:`megalabel.training.averaging.WeightAverage`."""

    start: NonNegativeInt  # epochs before the first weights enter the average
    every_steps: PositiveInt  # steps between weights that enter


class Training(Settings):
    """The loop."""

    renamed: ClassVar[Mapping[str, str]] = {"freeze": "freeze: [encoder], a key of the recipe or of a stage"}

    epochs: PositiveInt
    max_steps: PositiveInt | None = None  # training ends after them, wherever in an epoch; None: after the epochs
    encoder: OptimiserSettings  # of all encoders
    tables: OptionalOptimiser = None  # features of a bag, free vectors; None: encoder's rates (lazy_adamw)
    heads: OptionalOptimiser = None  # projections, temperature, bias; None follows encoder
    schedule: Literal["linear", "cosine", "constant", "one_cycle", "three_phase"] = "linear"
    warmup: Fraction = 0.1  # of all steps
    warmup_steps: NonNegativeInt | None = None  # in place of a share
    cooldown: Fraction = 0.2  # of all steps, at the end of three_phase
    milestones: tuple[PositiveInt, ...] = ()  # epochs after which the rate is multiplied by milestone_factor
    milestone_factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    averaging: AveragingSettings | None = None  # of the weights that are evaluated and kept; None keeps the last ones
    clip: PositiveFloat | None = None  # largest norm of all gradients together; None does not clip
    chunk_size: PositiveInt = 256  # texts whose activations are held at once
    validation: Annotated[float, Field(ge=0, lt=1)] = (
        0.1  # share of train held out if the data has no val rows; 0: none
    )
    validation_like_test: bool = True  # symmetric sets: with test's share of label texts and labels per row
    evaluate_every: PositiveInt = 1  # epochs
    evaluate_on: PositiveInt | None = None  # validation rows at most, evenly spread; None takes all
    select: str = "nDCG@5"
    patience: PositiveInt | None = None  # evaluations without a better one
    refit: Literal[False, True, "continue"] = False  # on train + val, from the start or from what was selected
    device: str = "auto"  # cpu, cuda, cuda:1, mps; auto: cuda if there is one, else cpu
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # encoders'; auto: bfloat16 for transformers on cuda

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        self.require(self.warmup_steps is None, "warmup", "warmup_steps is given")
        self.require(self.schedule == "three_phase", "cooldown", "schedule is not three_phase")
        self.require(bool(self.milestones), "milestone_factor", "there are no milestones")
        late = [epoch for epoch in self.milestones if epoch >= self.epochs]
        if late:
            raise ValueError(f"milestones: {late[0]} has no effect, training ends after {self.epochs} epochs")
        if len(set(self.milestones)) < len(self.milestones):
            raise ValueError("milestones: duplicate epoch")
        if self.averaging is not None and self.averaging.start >= self.epochs:
            raise ValueError(f"averaging has no effect: training ends after {self.epochs} epochs, before it starts")
        return self

    @field_validator("select")
    @classmethod
    def _check_select(cls, value: str) -> str:
        if value not in METRICS:
            raise ValueError(nearest(value, METRICS))
        return value

    @field_validator("encoder", "tables", "heads", mode="before")
    @classmethod
    def _no_short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("an optimiser needs a learning rate: {kind: adamw, lr: 1.0e-3}")
        return value
