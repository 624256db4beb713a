"""Settings of built-in sets: ``key=value,key=value``, each checked against what the set allows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from megalabel.documents import parse_whole
from megalabel.errors import SettingError, nearest

__all__ = ["Setting", "parse_settings"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a built-in set.

    ``whole`` is a whole number from ``low`` to ``high``, ``choice`` one of ``choices``,
    ``names`` a list joined by ``+``, ``path`` a file or folder.
    """

    kind: Literal["whole", "choice", "names", "path"]
    default: Any
    about: str
    low: int = 0
    high: int = 2**31 - 1
    choices: tuple[str, ...] = ()


def parse_settings(name: str, text: str, settings: dict[str, Setting]) -> dict[str, Any]:
    """Return a value for every setting: what ``text`` gives, else the default.

    >>> allowed = {"points": Setting("whole", 100, "number of points", low=1)}
    >>> parse_settings("synthetic", "points=20", allowed)
    {'points': 20}
    >>> parse_settings("synthetic", "point=20", allowed)
    Traceback (most recent call last):
    megalabel.errors.SettingError: synthetic has no setting 'point'; did you mean 'points'?
    """
    values = {key: setting.default for key, setting in settings.items()}
    seen: set[str] = set()
    for piece in text.split(",") if text.strip() else ():
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not key or not value:
            raise SettingError(
                f"{name}: {piece.strip()!r} is not a setting",
                remedy=f"write {name}:key=value,key=value with keys {', '.join(settings)}",
            )
        if key not in settings:
            raise SettingError(f"{name} has no setting {key!r}", remedy=nearest(key, settings))
        if key in seen:
            raise SettingError(f"{name}: {key} is set twice")
        seen.add(key)
        values[key] = _read(f"{name}: {key}", value, settings[key])
    return values


def _read(what: str, value: str, setting: Setting) -> Any:
    if setting.kind == "path":
        return Path(value).expanduser()
    if setting.kind == "choice":
        if value not in setting.choices:
            raise SettingError(f"{what} cannot be {value!r}", remedy=nearest(value, setting.choices))
        return value
    if setting.kind == "names":
        names = [part.strip() for part in value.split("+")]
        odd = next((part for part in names if not part.isidentifier()), None)
        if odd is not None:
            raise SettingError(f"{what}: {odd!r} is not a name", remedy="join names with +")
        return tuple(dict.fromkeys(names))
    return _whole(what, value, setting)


def _whole(what: str, value: str, setting: Setting) -> int:
    try:
        number = parse_whole(value)
    except ValueError:
        raise SettingError(f"{what} must be a whole number, not {value!r}") from None
    if not setting.low <= number <= setting.high:
        raise SettingError(f"{what} must lie in {setting.low}..{setting.high}, not {number}")
    return number
