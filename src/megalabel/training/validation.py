"""The validation rows of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.hold_out import hold_out
from megalabel.data.matrices import count_columns
from megalabel.heads.head import Changed
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["changed_rows", "describe_validation", "with_validation"]


def with_validation(recipe: Recipe, data: Dataset) -> Dataset:
    """Return the data with validation rows: its own, or some of train; without any if the recipe wants none."""
    chosen = recipe.training
    if data.val is not None or chosen.validation == 0:
        return data
    return hold_out(data, share=chosen.validation, like_test=chosen.validation_like_test, seed=recipe.seed)


def describe_validation(data: Dataset) -> str:
    """Return how many validation texts there are, in words."""
    if data.val is None:
        return "no validation texts (the last epoch is kept)"
    return counted(len(data.val), "validation text")


def changed_rows(data: Dataset) -> Changed:
    """Return how the train rows change when the validation rows come back."""
    gained = count_columns(data.refit().train.targets) != count_columns(data.train.targets)
    return Changed(np.flatnonzero(gained), data.refit_places()[0])
