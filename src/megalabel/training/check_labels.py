"""Labels that a recipe cannot learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.matrices import count_columns
from megalabel.data.texts import first_equal
from megalabel.errors import DataError
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["check_labels"]


def check_labels(recipe: Recipe, data: Dataset, say: Callable[[str], None]) -> None:
    """Refuse labels without text if a head reads it; warn of texts that occur twice, and of labels without points."""
    first = first_equal(data.labels.texts)
    if twice := int((first != np.arange(len(first))).sum()):
        verb = "has" if twice == 1 else "have"
        say(f"{counted(twice, 'label')} {verb} the text of an earlier one; no head can tell them apart by text")
    reading = [name for name, head in recipe.heads.items() if head.reads_text]
    if not reading:
        if recipe.augment is not None and recipe.augment.kind == "gandalf":
            return  # their own text is a training point
        points = count_columns(data.train.targets)
        if missing := int((points == 0).sum()):
            say(f"{missing:,} of {len(data.labels):,} labels have no training point; free vectors cannot learn them")
        return
    empty = [place for place, text in enumerate(data.labels.texts) if not text.strip()]
    if empty:
        raise DataError(
            f"{data.name}: {len(empty):,} of {len(data.labels):,} labels have no text "
            f"(the first is {data.labels.uids[empty[0]]!r}), but the head {reading[0]!r} reads it",
            remedy="give every label a text, or use a recipe with free heads only",
        )
