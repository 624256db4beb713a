"""What a search may change: a few keys of a recipe, each with a list of values or a range."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from megalabel.documents import parse_yaml
from megalabel.errors import SettingError
from megalabel.recipes.load_recipe import load_recipe

if TYPE_CHECKING:
    from numpy.random import Generator

    from megalabel.recipes.schema import Recipe

__all__ = ["Axis", "Choice", "Range", "change_of", "default_space", "read_space"]

_RATE, _TEMPERATURE = 5.0, 3.0  # a default range reaches from value / factor to value * factor
_NEAR = 0.2  # of a range, in either direction: what counts as near a value
_FIXED = (  # what trials have in common, so that they can be compared
    "ngrams", "predict", "seed", "name", "paper", "about", "differs", "training.refit", "training.device",
    "training.select", "training.validation", "training.validation_like_test", "training.evaluate_on",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A list of values."""

    values: tuple[Any, ...]

    def draw(self, generator: Generator) -> Any:
        """Return any of the values."""
        return self.values[int(generator.integers(len(self.values)))]

    def near(self, value: Any, generator: Generator) -> Any:
        """Return a neighbour of the value in the list."""
        if value not in self.values:
            return self.draw(generator)
        place = self.values.index(value) + (-1 if generator.random() < 0.5 else 1)
        return self.values[min(max(place, 0), len(self.values) - 1)]

    def checked(self) -> Iterable[Any]:
        """Return the values to check before the search."""
        return self.values

    def __str__(self) -> str:
        return ", ".join(map(_plain, self.values))


@dataclass(frozen=True)
class Range:
    """All numbers from low to high, evenly or, with ``log``, evenly by their logarithm; whole ones if both ends are."""

    low: float
    high: float
    log: bool = False

    def draw(self, generator: Generator) -> Any:
        """Return any number of the range."""
        return self._at(generator.random())

    def near(self, value: Any, generator: Generator) -> Any:
        """Return a number within a fifth of the range of the value."""
        span = self._place(self.high) - self._place(self.low)
        share = (self._place(float(value)) - self._place(self.low)) / span
        return self._at(min(max(share + (2 * generator.random() - 1) * _NEAR, 0.0), 1.0))

    def checked(self) -> Iterable[Any]:
        """Return the values to check before the search."""
        return (self.low, self.high)

    def _place(self, value: float) -> float:
        return math.log(value) if self.log else value

    def _at(self, share: float) -> Any:
        low, high = self._place(self.low), self._place(self.high)
        value = low + share * (high - low)
        value = math.exp(value) if self.log else value
        if isinstance(self.low, int) and isinstance(self.high, int):
            return min(max(round(value), self.low), self.high)
        return min(max(float(f"{value:.3g}"), float(self.low)), float(self.high))

    def __str__(self) -> str:
        return f"{_plain(self.low)}..{_plain(self.high)}{' log' if self.log else ''}"


Axis: TypeAlias = Choice | Range


def read_space(texts: Sequence[str], source: str, changes: Sequence[str] = ()) -> dict[str, Axis]:
    """Read ``key=a,b,c``, ``key=low..high`` and ``key=low..high log``; every key and value is checked with the recipe.

    >>> space = read_space(["training.epochs=4,8", "training.encoder.lr=1e-4..1e-2 log"], "unidec-cpu")
    >>> [str(axis) for axis in space.values()]
    ['4, 8', '0.0001..0.01 log']
    >>> read_space(["training.epocs=4,8"], "unidec-cpu")
    Traceback (most recent call last):
    megalabel.errors.SettingError: --space: unknown key 'training.epocs'; did you mean 'epochs'?
    """
    recipe = load_recipe(source, changes)
    space: dict[str, Axis] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not key or not values:
            remedy = "for example training.epochs=3,6,12 or 'training.encoder.lr=1e-4..1e-2 log'"
            raise SettingError(f"--space {text!r} is not key=values", remedy=remedy)
        if key in space:
            raise SettingError(f"--space names {key!r} twice", remedy="put all its values into one")
        axis = _read_range(key, values) if ".." in values else _read_values(key, values)
        for value in axis.checked():
            try:
                load_recipe(source, [*changes, change_of(key, value)])
            except SettingError as error:
                raise SettingError(f"--space: {error.what}", remedy=error.remedy) from error
        _check_key(key, recipe)
        space[key] = axis
    return space


def default_space(source: str, changes: Sequence[str] = ()) -> dict[str, Axis]:
    """Return the settings of a recipe that matter most, around the values it has.

    Learning rates and temperatures on a logarithmic range; epochs, batch size, mined negatives, positives, and the
    share of features that a bag leaves out as a few values. A value that the recipe refuses is left out.

    >>> for key, axis in list(default_space("unidec-cpu").items())[:3]:
    ...     print(key, axis, sep=": ")
    training.encoder.lr: 0.0002..0.005 log
    training.tables.lr: 0.01..0.25 log
    heads.dual.temperature.value: 0.017..0.15 log
    """
    space: dict[str, Axis] = {}
    for key, axis in _candidates(load_recipe(source, changes)):
        valid = []
        for value in axis.checked():
            with suppress(SettingError):
                load_recipe(source, [*changes, change_of(key, value)])
                valid.append(value)
        if isinstance(axis, Choice) and len(valid) > 1:
            space[key] = Choice(tuple(valid))
        elif isinstance(axis, Range) and len(valid) == 2:
            space[key] = axis
    return space


def change_of(key: str, value: Any) -> str:
    """Return ``key=value`` as ``--set`` takes it."""
    text = json.dumps(value)
    if isinstance(value, float) and "." not in text:  # YAML takes 1e-05 for a text
        text = text.replace("e", ".0e")
    return f"{key}={text}"


def _candidates(recipe: Recipe) -> Iterator[tuple[str, Axis]]:
    """Yield what a search may change, before the recipe has checked it."""
    document: dict[str, Any] = recipe.model_dump(mode="json", by_alias=True)
    training, batching = document["training"], document["batching"]
    for part in ("encoder", "tables", "heads"):
        rate = (training[part] or {}).get("lr")
        if rate:
            yield f"training.{part}.lr", Range(_round(rate / _RATE), _round(rate * _RATE), log=True)
    for name, head in document["heads"].items():
        temperature = head.get("temperature") or {}
        value = temperature.get("value")
        if value and value != 1 and not temperature.get("share"):
            ends = _round(value / _TEMPERATURE), _round(value * _TEMPERATURE)
            yield f"heads.{name}.temperature.value", Range(*ends, log=True)
    stages = [stage for stage in document["stages"] if "epochs" in stage["training"]]
    for stage in stages:
        yield f"stages.{stage['name']}.training.epochs", _around(stage["training"]["epochs"])
    if len(stages) < max(1, len(document["stages"])):
        yield "training.epochs", _around(training["epochs"])
    yield "batching.batch_size", _around(batching["batch_size"])
    for part, key in (("negatives", "mined"), ("positives", "count")):
        number = (batching.get(part) or {}).get(key)
        if number:
            yield f"batching.{part}.{key}", _around(number)
    if len(recipe.encoders) == 1 and recipe.encoder.kind == "bag":
        yield "encoder.options.thin", Choice((0.0, 0.3, 0.5))


def _check_key(key: str, recipe: Recipe) -> None:
    """Refuse keys that trials cannot measure."""
    first, *rest = key.split(".")
    if first == "heads" and rest and rest[0] in recipe.fitted_heads:
        remedy = "a trial trains the network only; compare whole runs with megalabel compare"
        raise SettingError(f"--space: {key!r} belongs to a head that is fitted after training", remedy=remedy)
    if any(key == fixed or key.startswith(f"{fixed}.") for fixed in _FIXED):
        raise SettingError(f"--space: trials with another {key} cannot be compared", remedy="use --set for it")


def _read_range(key: str, text: str) -> Range:
    ends, _, scale = text.partition(" ")
    low, _, high = ends.partition("..")
    first, last = _number(low), _number(high)
    if scale.strip() not in ("", "log") or first is None or last is None:
        raise SettingError(f"--space {key}: {text!r} is no range", remedy="write low..high or 'low..high log'")
    if not first < last:
        raise SettingError(f"--space {key}: {text!r} has no values", remedy="write the smaller number first")
    if scale and first <= 0:
        raise SettingError(f"--space {key}: a log range begins at {_plain(first)}", remedy="begin above 0")
    return Range(first, last, log=bool(scale))


def _read_values(key: str, text: str) -> Choice:
    try:
        values = parse_yaml(f"[{text}]")
    except SettingError as error:
        raise SettingError(f"--space {key}: {error.what}", remedy="write key=a,b,c") from error
    numbers = [_number(value) if isinstance(value, str) else None for value in values]
    values = [value if number is None else number for value, number in zip(values, numbers, strict=True)]
    unlike = [value for place, value in enumerate(values) if value not in values[:place]]
    if not unlike:
        raise SettingError(f"--space {key}: there are no values", remedy="write key=a,b,c")
    return Choice(tuple(unlike))


def _number(text: str) -> float | None:
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            return number if math.isfinite(number) else None
    return None


def _around(value: int) -> Choice:
    return Choice(tuple(dict.fromkeys([max(1, value // 2), value, value * 2])))


def _round(value: float) -> float:
    return float(f"{value:.2g}")


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
