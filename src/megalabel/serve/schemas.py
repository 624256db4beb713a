"""Schemas of requests and answers; ``app.py`` adds the limits that depend on settings to the OpenAPI document."""

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
    "LabelOrder",
    "ModelInfo",
    "NamedLabel",
    "Predict",
    "Predictions",
    "RemoveLabels",
    "Removed",
    "RenameLabel",
]


def _to_int(value: Any) -> Any:
    """Accept 5.0 as 5, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_to_int)]
Texts = Annotated[list[StrictStr], Field(fail_fast=True)]
_LABEL: dict[str, Any] = {"id": 17, "uid": "numpy.linalg.inv", "text": "Compute the inverse of a matrix."}


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Predict(_Request):
    """Texts to predict labels for."""

    texts: Texts = Field(description="The texts.", examples=[["inverse of a square matrix"]])
    k: Annotated[Integer, Field(ge=1)] | None = Field(
        None,
        description="Labels per text, best first; all labels if the model has fewer. Omitted: the labels above the "
        "threshold of the model, see `threshold` of `GET /model`; the five best if it has none.",
    )
    goal: Literal["micro-f1", "sample-f1", "macro-f1"] | None = Field(
        None, description="Without `k`: what the threshold is chosen for; `micro-f1` by default."
    )
    precision: float | None = Field(
        None, gt=0, le=1, description="Without `k`: choose the threshold for this precision on validation texts."
    )
    heads: StrictStr = Field("all", description="`all`, or the name of one head.")
    tail: float | None = Field(
        None, ge=0, le=1, description="Fused models only: 0 ranks by probability, 1 by propensity-scored gain."
    )
    min_score: float | None = Field(
        None, description="Omit labels with a lower score; without `k`, the threshold itself."
    )
    details: bool = Field(False, description="Add training frequency and per-head scores to each label.")


class AddLabels(_Request):
    """Labels to add."""

    texts: Texts = Field(
        description="One text per label; blank texts are invalid.", examples=[["a label nobody trained on"]]
    )
    uids: Texts | None = Field(None, description="One uid per label, never used before; generated if omitted.")


class RemoveLabels(_Request):
    """Labels to remove."""

    uids: Texts = Field(description="Uids of the labels.", examples=[["added-4236"]])


class RenameLabel(_Request):
    """A new text for a label."""

    text: StrictStr = Field(description="The new text; must not be blank.", examples=["a better text"])


class Explain(_Request):
    """A text and a label."""

    text: StrictStr = Field(description="The text.", examples=["inverse of a square matrix"])
    label: StrictStr | None = Field(None, description="The uid of a label; defaults to the best label.")
    k: Integer = Field(5, ge=1, description="Number of training texts and related labels to return.")


Frequency = Literal["head", "torso", "tail", "unseen"]
LabelOrder = Literal["id", "most", "fewest"]


class NamedLabel(BaseModel):
    """A label."""

    model_config = ConfigDict(json_schema_extra={"examples": [_LABEL]})

    id: int
    uid: str
    text: str


class ListedLabel(NamedLabel):
    """A label and its training frequency."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_LABEL, "points": 12, "frequency": "torso"}]})

    points: int = Field(description="Training points; 0 if the label was added after training.")
    frequency: Frequency = Field(description="head: more than 100 points, torso: 10 to 100, tail: 1 to 9.")


class PredictedLabel(NamedLabel):
    """A label predicted for a text; ``points``, ``frequency`` and ``heads`` only with ``details``."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_LABEL, "score": 0.81}]})

    score: float = Field(
        description="A probability if the model is fused; calibrated if it had enough validation texts."
    )
    points: int = Field(0, description="Training points.")
    frequency: Frequency = "unseen"
    heads: dict[str, float | None] = Field({}, description="The score from each head.")


class UsedThreshold(BaseModel):
    """The threshold that an answer was cut at."""

    value: float = Field(description="Labels have at least this score.")
    goal: str = Field(description="What it was chosen for on validation texts.", examples=["micro-f1"])


class Predictions(BaseModel):
    """The labels of each text, best first, in the order of the texts."""

    predictions: list[list[PredictedLabel]]
    threshold: UsedThreshold | None = Field(None, description="Only if the model's threshold chose the labels.")


class LabelList(BaseModel):
    """A page of labels."""

    total: int = Field(description="Number of matching labels.")
    labels: list[ListedLabel]


class Added(BaseModel):
    """The new labels."""

    labels: list[NamedLabel]


class Removed(BaseModel):
    """The number of labels removed."""

    removed: int


class Limits(BaseModel):
    """Limits of one request."""

    texts: int
    k: int
    body_bytes: int
    text_characters: int


class ThresholdPoint(BaseModel):
    """What a threshold does on validation texts; all but `threshold` and `labels_per_text` in percent."""

    threshold: float
    precision: float
    recall: float
    micro_f1: float
    sample_f1: float
    macro_f1: float
    labels_per_text: float
    empty: float = Field(description="Texts without a label.")


class StoredThreshold(UsedThreshold):
    """The threshold for requests without `k`, and what others do."""

    rows: int = Field(description="Validation texts it was chosen on.")
    curve: list[ThresholdPoint] = Field(description="Highest threshold first.")


class ModelInfo(BaseModel):
    """The served model."""

    name: str = Field(description="The name of its recipe.")
    labels: int = Field(description="Number of labels.")
    heads: list[str]
    fused: bool = Field(description="Scores are probabilities, calibrated if there were enough validation texts.")
    tail: float | None = Field(description="Default of `tail`; null if the model is not fused.")
    threshold: StoredThreshold | None = Field(description="For requests without `k`; null if the model has none.")
    limits: Limits
    version: str = Field(description="Version of megalabel.")
    read_only: bool = Field(description="Labels cannot be changed.")


class Health(BaseModel):
    """The server is up."""

    status: Literal["ok"]


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(examples=["invalid"])
    message: str = Field(description="One line: what is wrong and what to do.", examples=["texts is missing"])
    where: str | None = Field(description="The invalid part of the request.", examples=["texts[3]"])


class Failure(BaseModel):
    """An error."""

    error: ErrorDetail
