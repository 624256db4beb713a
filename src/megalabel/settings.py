"""Base of all settings: unknown keys are refused, unions are chosen by kind, settings without effect are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from megalabel.errors import nearest

__all__ = [
    "SEEDS",
    "Dropout",
    "Fraction",
    "NonNegative",
    "NonNegativeInt",
    "PositiveFloat",
    "Seed",
    "Settings",
    "first_error",
    "one_of",
    "reachable",
]

SEEDS = 2**63  # a seed is below this: what every generator takes

Fraction = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]


class Settings(BaseModel):
    """Base class of all settings: frozen, and an unknown key is an error.

    A kind of head, loss, encoder, optimiser or order has a subclass of its own with a literal ``kind``, so a
    setting that does nothing for that kind does not exist. If a setting depends on the value of another, the
    subclass calls :meth:`require` in a validator. ``renamed`` maps old keys to new ones; an old key is
    refused with its new name.

    >>> class Limits(Settings):
    ...     renamed = {"most": "max_targets"}
    ...     max_targets: int = 5
    >>> Limits(most=3)
    Traceback (most recent call last):
    pydantic_core._pydantic_core.ValidationError: 1 validation error for Limits
      'most' is now called 'max_targets' ...
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, document: Any) -> Any:
        """Refuse renamed and unknown keys, with the new or the nearest name."""
        valid = [field.alias or name for name, field in cls.model_fields.items()]
        for key in document if isinstance(document, Mapping) else ():
            if key in cls.renamed:
                names = {"old": repr(key), "new": repr(cls.renamed[key])}
                raise PydanticCustomError("unknown_key", "{old} is now called {new}", names)
            if key not in valid:
                names = {"key": repr(key), "hint": nearest(str(key), valid)}
                raise PydanticCustomError("unknown_key", "unknown key {key}; {hint}", names)
        return document

    def require(self, condition: bool, names: str, reason: str) -> None:
        """Raise a ValueError if one of ``names`` (space separated) is not at its default while the condition is false.

        >>> class Mining(Settings):
        ...     mined: int = 0
        ...     top: int = 30
        >>> Mining(top=50).require(False, "top", "mined is 0")
        Traceback (most recent call last):
        ValueError: top has no effect: mined is 0
        """
        for name in names.split():
            default = type(self).model_fields[name].get_default(call_default_factory=True)
            if not condition and getattr(self, name) != default:
                raise ValueError(f"{name} has no effect: {reason}")


def first_error(error: ValidationError) -> str:
    """Return the first error in one line: its key and value, and what is valid or the nearest valid key.

    Unknown keys come first: a key that is missing may be misspelt.

    >>> class Loop(Settings):
    ...     epochs: int
    >>> for document in ({"epocs": 3}, {"epochs": "many"}):
    ...     try:
    ...         Loop.model_validate(document)
    ...     except ValidationError as error:
    ...         print(first_error(error))
    unknown key 'epocs'; did you mean 'epochs'?
    epochs is 'many': input should be a valid integer, unable to parse string as an integer
    """
    first = min(error.errors(), key=lambda part: part["type"] != "unknown_key")
    place = [str(part) for part in first["loc"]]
    context = first.get("ctx", {})
    if first["type"] == "unknown_key" and "hint" in context:
        return f"unknown key {'.'.join([*place, context['key'].strip(chr(39))])!r}; {context['hint']}"
    message = first["msg"].removeprefix("Value error, ")
    if not place:
        return message
    value = f" is {first['input']!r:.60}" if isinstance(first["input"], str | int | float) else ""
    return f"{'.'.join(place)}{value}: {message[0].lower()}{message[1:]}"


@dataclass(frozen=True)
class _Kinds:
    """What :func:`one_of` leaves in the annotation of a field, for :func:`reachable`."""

    kinds: Callable[[], Mapping[str, type[Settings]]]


def one_of(
    kinds: Callable[[], Mapping[str, type[Settings]]],
    *,
    key: str = "kind",
    default: str | None = None,
    optional: bool = False,
) -> Any:
    """Return the annotation of a field that holds one of several settings, chosen by ``key``.

    Errors name the field and the key inside it, without the name of the chosen class. A plain string means
    that kind with all defaults.

    Args:
        kinds: returns the settings class of each kind; called at validation, so kinds can be registered later.
        key: the field that names the kind.
        default: the kind if the key is missing; None makes the key mandatory.
        optional: the field may be None.

    >>> class Linear(Settings):
    ...     kind: str = "linear"
    ...     warmup: int = 0
    >>> Schedule = one_of(lambda: {"linear": Linear})
    >>> class Recipe(Settings):
    ...     schedule: Schedule
    >>> Recipe.model_validate({"schedule": {"kind": "linear", "warmup": 3}}).schedule.warmup
    3
    """

    def choose(value: Any) -> Any:
        if isinstance(value, Settings) or (optional and value is None):
            return value
        if isinstance(value, str):
            value = {key: value}
        if not isinstance(value, Mapping):
            raise PydanticCustomError("mapping", "expected a mapping with the key {key}", {"key": repr(key)})
        known = kinds()
        kind = value.get(key, default)
        if kind is None:
            names = ", ".join(known)
            raise PydanticCustomError("kind", "missing key {key}; choose one of {names}", {"key": key, "names": names})
        if not isinstance(kind, str) or kind not in known:
            hint = nearest(str(kind), known)
            raise PydanticCustomError("kind", "{key} is {kind}; {hint}", {"key": key, "kind": repr(kind), "hint": hint})
        return known[kind].model_validate(dict(value))

    held = SerializeAsAny[Settings] | None if optional else SerializeAsAny[Settings]
    return Annotated[held, BeforeValidator(choose), _Kinds(kinds)]


def reachable(settings: type[Settings]) -> list[type[Settings]]:
    """Return a settings class and all classes whose fields a document of it can hold, every kind among them.

    >>> from megalabel.recipes.schema import Predict, Recipe
    >>> Predict in reachable(Recipe), Recipe in reachable(Predict)
    (True, False)
    """
    classes: dict[type[Settings], None] = {}

    def visit(part: Any) -> None:
        if isinstance(part, _Kinds):
            for kind in part.kinds().values():
                visit(kind)
        elif isinstance(part, type) and issubclass(part, Settings) and part not in (Settings, *classes):
            classes[part] = None
            for field in part.model_fields.values():
                for inner in (field.annotation, *field.metadata):
                    visit(inner)
        else:
            for inner in get_args(part):
                visit(inner)

    visit(settings)
    return list(classes)
