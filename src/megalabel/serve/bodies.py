"""What requests and answers look like; limits that depend on settings are added by ``make_openapi``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr

__all__ = [
    "AddLabels",
    "Added",
    "Explain",
    "Failure",
    "Health",
    "LabelList",
    "ModelInfo",
    "NamedLabel",
    "Predict",
    "Predictions",
    "RemoveLabels",
    "Removed",
    "RenameLabel",
]


def _whole(value: Any) -> Any:
    """Take 5.0 for 5, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
Texts = Annotated[list[StrictStr], Field(fail_fast=True)]
_LABEL: dict[str, Any] = {"id": 17, "uid": "numpy.linalg.inv", "text": "Compute the inverse of a matrix."}


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Predict(_Request):
    """Texts to find labels for."""

    texts: Texts = Field(description="The texts.", examples=[["inverse of a square matrix"]])
    k: Whole = Field(5, ge=1, description="Labels for each text, best first; all labels where there are fewer.")
    heads: StrictStr = Field("all", description="All heads together, or one of them by name.")
    tail: float | None = Field(
        None, ge=0, le=1, description="Of a fused model: 0 ranks by probability, 1 by propensity-scored gain."
    )
    min_score: float | None = Field(None, description="Leave out labels with a lower score.")
    details: bool = Field(False, description="Say of each label how often it was seen and what each head scores.")


class AddLabels(_Request):
    """Labels to add by their texts."""

    texts: Texts = Field(description="One for each label, none blank.", examples=[["a label nobody trained on"]])
    uids: Texts | None = Field(None, description="Names that no label has or had; made up where left out.")


class RemoveLabels(_Request):
    """Labels to remove."""

    uids: Texts = Field(description="Their names.", examples=[["added-4236"]])


class RenameLabel(_Request):
    """Another text for a label."""

    text: StrictStr = Field(description="Not blank.", examples=["a better text"])


class Explain(_Request):
    """A text and a label."""

    text: StrictStr = Field(description="The text.", examples=["inverse of a square matrix"])
    label: StrictStr | None = Field(None, description="The uid of a label; the best one where left out.")
    k: Whole = Field(5, ge=1, description="Training texts and related labels to name.")


Frequency = Literal["head", "torso", "tail", "unseen"]


class NamedLabel(BaseModel):
    """A label."""

    model_config = ConfigDict(json_schema_extra={"examples": [_LABEL]})

    id: int
    uid: str
    text: str


class ListedLabel(NamedLabel):
    """A label and how often it was seen."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_LABEL, "points": 12, "frequency": "torso"}]})

    points: int = Field(description="Training points; 0 where it was added after training.")
    frequency: Frequency = Field(description="head: more than 100 points, torso: 10 to 100, tail: 1 to 9.")


class PredictedLabel(NamedLabel):
    """A label found for a text; the last three with ``details`` only."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_LABEL, "score": 0.81}]})

    score: float = Field(description="Of a fused model: a calibrated probability.")
    points: int = Field(0, description="Training points.")
    frequency: Frequency = "unseen"
    heads: dict[str, float | None] = Field({}, description="The score by every head.")


class Predictions(BaseModel):
    """For each text, in order, its labels, best first."""

    predictions: list[list[PredictedLabel]]


class LabelList(BaseModel):
    """Labels in the order of their ids."""

    total: int = Field(description="How many labels match.")
    labels: list[ListedLabel]


class Added(BaseModel):
    """The new labels."""

    labels: list[NamedLabel]


class Removed(BaseModel):
    """How many labels were removed."""

    removed: int


class Limits(BaseModel):
    """Limits of one request."""

    texts: int
    k: int
    body_bytes: int
    text_characters: int


class ModelInfo(BaseModel):
    """The model that is served."""

    name: str = Field(description="The name of its recipe.")
    labels: int = Field(description="Labels that can be found.")
    heads: list[str]
    fused: bool = Field(description="Scores are calibrated probabilities.")
    tail: float | None = Field(description="Its own setting; null where it is not fused.")
    limits: Limits
    version: str = Field(description="Of megalabel.")
    read_only: bool = Field(description="Labels cannot be changed.")


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]


class _What(BaseModel):
    code: str = Field(examples=["invalid"])
    message: str = Field(description="One line: what is wrong and what to do.", examples=["texts is missing"])
    where: str | None = Field(description="The part of the request that is wrong.", examples=["texts[3]"])


class Failure(BaseModel):
    """What went wrong."""

    error: _What
