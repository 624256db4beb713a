from typing import ClassVar, Literal

import pytest
from pydantic import Field, ValidationError

from megalabel.settings import Settings, one_of


class Linear(Settings):
    renamed: ClassVar[dict[str, str]] = {"ramp": "warmup"}
    kind: Literal["linear"] = "linear"
    warmup: int = 0
    source: str = Field("train", alias="from")


class Constant(Settings):
    kind: Literal["constant"] = "constant"


class Recipe(Settings):
    schedule: one_of(lambda: {"linear": Linear, "constant": Constant}, default="linear") | None = None


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", Constant()),
        ({"warmup": 3}, Linear(warmup=3)),
        ({"kind": "linear", "from": "val"}, Linear(**{"from": "val"})),
        (Constant(), Constant()),
        (None, None),
    ],
)
def test_the_kind_chooses_the_settings(schedule, expected):
    assert Recipe.model_validate({"schedule": schedule}).schedule == expected


@pytest.mark.parametrize(
    ("schedule", "place", "words"),
    [
        ({"ramp": 3}, ("schedule",), "'ramp' is now called 'warmup'"),
        ({"warmups": 3}, ("schedule",), "unknown key 'warmups'; did you mean 'warmup'?"),
        ({"kind": "constant", "warmup": 3}, ("schedule",), "unknown key 'warmup'; choose one of: kind"),
        ({"warmup": "long"}, ("schedule", "warmup"), "valid integer"),
        ("liner", ("schedule",), "kind is 'liner'; did you mean 'linear'?"),
        (3, ("schedule",), "expected a mapping with the key 'kind'"),
    ],
)
def test_errors_name_the_place_and_the_remedy(schedule, place, words):
    with pytest.raises(ValidationError) as error:
        Recipe.model_validate({"schedule": schedule})
    first = error.value.errors()[0]
    assert first["loc"] == place
    assert words in first["msg"]
