"""Settings of prediction: how the scores of heads are put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from megalabel.errors import nearest
from megalabel.heads.dense import DenseSettings
from megalabel.network.cascade import cascade_chain
from megalabel.settings import Fraction, PositiveFloat, Settings

__all__ = ["CascadeSettings", "Predict"]


class CascadeSettings(Settings):
    """Prediction through coarser heads: :class:`megalabel.network.cascade.Cascade`.

    Heads that propose candidates to each other in training are searched in the same order, coarse to fine. Only labels
    in groups that survive are scored, by the product of the probabilities of all levels.
    """

    beam: PositiveInt | dict[str, PositiveInt] | None = None  # groups kept of a level; None: as many as in training
    weights: dict[str, PositiveFloat] = Field(default={})  # powers of the probabilities, by head; 1 if not named

    def beams(self, heads: Mapping[str, DenseSettings]) -> dict[str, int]:
        """Return how many groups each level keeps, given the heads of the recipe."""
        chain = cascade_chain(heads)
        tops = {head.candidates.source: head.candidates.top for n in chain if (head := heads[n]).candidates is not None}
        if isinstance(self.beam, dict):
            return tops | self.beam
        return tops if self.beam is None else dict.fromkeys(tops, self.beam)

    def check(self, dense: Mapping[str, DenseSettings], heads: Iterable[str]) -> None:
        """Raise a ValueError if the heads of a recipe are no cascade, or not those that the settings name."""
        chain = cascade_chain(dense)
        if not chain:
            raise ValueError("predict.cascade has no effect: no head over the labels has candidates from another")
        for name in heads:
            if name not in chain:
                raise ValueError(f"predict.cascade: the head {name!r} is not part of it ({' -> '.join(chain)})")
        named = {"weights": (self.weights, chain), "beam": (self.beam, chain[:-1])}
        for key, (names, known) in named.items():
            for name in names if isinstance(names, dict) else ():
                if name not in known:
                    raise ValueError(f"predict.cascade.{key} is {name!r}; {nearest(name, known)}")


class Predict(Settings):
    """How heads are put together: by given weights, weights chosen on validation, a fusion fitted on it, or a cascade.

    ``fusion`` is :class:`megalabel.fusion.Fusion`, ``tree`` is :class:`megalabel.fusion.TreeFusion`.
    """

    cascade: CascadeSettings | None = None  # search groups of labels first; None scores every label
    weights: dict[str, float] | Literal["equal", "validation", "fusion", "tree"] = "equal"
    candidates: PositiveInt = 100  # labels each head proposes
    tail: Fraction = 0.0  # rank by p x (inverse propensity)^tail
    beta: PositiveFloat = 1.0  # tree: how much the tree and all heads but the last count; the last counts 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.require(self.fused, "candidates tail", "weights is not fusion")
        self.require(self.weights == "tree", "beta", "weights is not tree")
        self.require(self.cascade is None, "weights", "predict.cascade multiplies probabilities; see its own weights")
        return self

    @property
    def fused(self) -> bool:
        """Whether a fusion of all heads is fitted on validation rows."""
        return self.weights in ("fusion", "tree")
