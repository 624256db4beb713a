"""What a model card may say: every value is checked before any of it is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from megalabel.data.propensity_constants import checked_constants
from megalabel.documents import inside
from megalabel.errors import DataError
from megalabel.settings import first_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["check_card", "check_heads", "check_labels"]

Weight = Annotated[FiniteFloat, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=2**53)]  # what every reader of JSON can hold


class IndexEntry(BaseModel):
    """What the card keeps of an index."""

    model_config = ConfigDict(strict=True)
    weights: dict[str, FiniteFloat]
    summary: str
    changed: list[Count]


class ModelCard(BaseModel):
    """What loading a model reads from its card; other keys are for people."""

    model_config = ConfigDict(strict=True)
    format: int
    labels: Count
    trained: Count | None = None
    sequence: Count = 0
    points: Count
    propensity: list[FiniteFloat] = Field(min_length=2, max_length=2)
    weights: dict[str, Weight]
    fusion: dict[str, Any] | None
    threshold: dict[str, Any] | None = None
    index: list[IndexEntry] = []
    sha256: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]


def check_card(card: Mapping[str, Any], path: Path) -> None:
    """Raise a DataError if a card has a value that no model has, or names a file outside its folder."""
    try:
        ModelCard.model_validate(card)
    except ValidationError as error:
        raise DataError(f"this model card is invalid ({first_error(error)})", path=path) from None
    checked_constants(*card["propensity"], path=path)
    for name in card["sha256"]:
        inside(path.parent, name)


def check_labels(card: Mapping[str, Any], counts: NDArray[np.int64], path: Path) -> None:
    """Raise a DataError if a card disagrees with the labels of its model, of which ``counts`` [L] has the points."""
    labels, trained, points = len(counts), card.get("trained"), card["points"]
    what = None
    if card["labels"] != labels:
        what = f"labels is {card['labels']:,}, but there are {labels:,}"
    elif trained is not None and trained > labels:
        what = f"trained is {trained:,}, more than the {labels:,} labels"
    elif labels and counts[:trained].max(initial=0) > points:
        what = f"points is {points:,}, but a label has {counts[:trained].max():,} of them"
    if what is not None:
        raise DataError(f"this card is not that of the model beside it ({what})", path=path, remedy="copy it again")


def check_heads(card: Mapping[str, Any], dense: list[str], fitted: list[str], path: Path) -> None:
    """Raise a DataError if the heads of a card are not those of its recipe."""
    named = None if card["fusion"] is None else card["fusion"].get("names")
    if set(card["weights"]) != set(dense) or (named is not None and set(map(str, named)) != {*dense, *fitted}):
        raise DataError("the heads of this card are not those of the recipe", path=path, remedy="copy the model again")
