"""Documents that people or other programs wrote: JSON, YAML, and numbers as text, read strictly.

What is wrong in them is one line that says where. Nothing else passes: a key that occurs
twice, NaN, nesting without end, ``1_0`` for 10, a device in place of a file, or a name
that leads out of its folder.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from functools import wraps
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from megalabel.errors import DataError, MegalabelError, SettingError

__all__ = [
    "check_regular",
    "has_duplicate_key",
    "inside",
    "open_regular",
    "parse_json",
    "parse_number",
    "parse_whole",
    "parse_yaml",
    "read_json",
    "read_yaml",
    "reads_saved",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

DEEPEST = 100  # lists and objects inside each other
LARGEST = 1 << 28  # bytes of a document
DIGITS = 4_000  # of a whole number
_KEY = re.compile(rb'"\s*:')
_WHOLE = re.compile(rf"-?[0-9]{{1,{DIGITS}}}")
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?|nan|inf(?:inity)?)", re.IGNORECASE)


def parse_whole(text: str | bytes) -> int:
    """Return a whole number of ASCII digits; a ValueError for anything else that ``int`` accepts.

    >>> parse_whole("-12"), parse_whole(b"7")
    (-12, 7)
    >>> parse_whole("1_0")
    Traceback (most recent call last):
    ValueError: '1_0' is not a whole number
    """
    text = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r:.60} is not a whole number")
    return int(text)


def parse_number(text: str | bytes) -> float:
    """Return a decimal number of ASCII digits, or NaN or infinity; a ValueError for ``1_0`` and the like.

    >>> parse_number("0.5"), parse_number("1e-3"), parse_number(".25")
    (0.5, 0.001, 0.25)
    """
    text = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r:.60} is not a number")
    return float(text)


def check_regular(path: str | PathLike[str]) -> None:
    """Raise a DataError if a path leads to a pipe, a device or a socket, which could be read for ever."""
    mode = Path(path).stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError("not a regular file", path=path, remedy="copy its content to a file")


def open_regular(path: str | PathLike[str]) -> BufferedReader:
    """Open a regular file for reading; an OSError if there is none, a DataError for a pipe or a device."""
    check_regular(path)
    return Path(path).open("rb")


# What libraries raise for values they were not made for.
_ANY = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


def reads_saved(load: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function that loads what was saved in a folder, its first argument.

    What a forged or foreign file makes fail in any library becomes a DataError about the folder.
    """

    @wraps(load)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return load(*args, **kwargs)
        except _ANY as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            what = f"what was saved here cannot be loaded ({reason:.200})"
            raise DataError(what, path=Path(str(args[0])), remedy="copy it again, or create it again") from error

    return checked


def inside(folder: Path, name: Any) -> Path:
    """Return the path of a file that a card names in its folder; a DataError if the name leads elsewhere."""
    parts = re.split(r"[/\\]", name) if isinstance(name, str) else []
    odd = not parts or any(part in ("", ".", "..") or ":" in part for part in parts)
    if odd or "\0" in name:
        raise DataError(f"{name!r:.60} is not the name of a file in this folder", path=folder, remedy="copy it again")
    return folder.joinpath(*parts)


def read_json(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the JSON object in a file; anything else is a DataError."""
    try:
        with open_regular(path) as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"this file cannot be read, {(error.strerror or str(error)).lower()}", path=path) from error
    document = parse_json(data, path)
    if not isinstance(document, dict):
        raise DataError("expected a JSON object", path=path)
    return document


def parse_json(data: bytes, path: str | PathLike[str], line: int | None = None) -> Any:
    """Return the value that JSON spells; a DataError for what is not JSON, for NaN and for duplicate keys."""
    if len(data) > LARGEST:
        raise DataError(f"this document has over {LARGEST >> 20} MiB", path=path)
    try:
        text = data.decode("utf-8-sig")
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_whole)
    except _LongNumberError as error:
        line = line or text.count("\n", 0, text.find(error.number)) + 1
        raise DataError(str(error), path=path, line=line) from None
    except json.JSONDecodeError as error:
        raise DataError(f"invalid JSON ({error.msg})", path=path, line=line or error.lineno) from error
    except RecursionError as error:
        raise _too_deep(path, line) from error
    except ValueError as error:  # a duplicate key, a constant, not UTF-8
        what = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise DataError(f"invalid JSON ({what})", path=path, line=line) from error
    if _is_deep(document):
        raise _too_deep(path, line)
    return document


def has_duplicate_key(data: bytes, row: dict[str, Any]) -> bool:
    """Return whether JSON that gives this object names a key twice; quick where no text has a quote before a colon.

    >>> has_duplicate_key(b'{"a": 1, "a": 2}', {"a": 2}), has_duplicate_key(b'{"a": {"b": 1}}', {"a": {"b": 1}})
    (True, False)
    """
    if len(_KEY.findall(data)) <= len(row):
        return False
    try:
        json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return True
    return False


def read_yaml(path: str | PathLike[str]) -> Any:
    """Return the document in a YAML file; a SettingError for what is not YAML and for duplicate keys."""
    try:
        with open_regular(path) as stream:
            text = stream.read(LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingError("this file is not UTF-8", path=path) from error
    except OSError as error:
        raise SettingError(f"this file cannot be read, {(error.strerror or str(error)).lower()}", path=path) from error
    return parse_yaml(text, path)


def parse_yaml(text: str, path: str | PathLike[str] | None = None) -> Any:
    """Return the value that YAML spells, without aliases; a SettingError for anything wrong in it."""
    import yaml

    try:
        return yaml.load(text, _strict_loader())
    except SettingError as error:  # about a value
        error.path, error.line = path, None if path is None else error.line
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None or path is None else mark.line + 1
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise SettingError(f"this is not YAML ({what})", path=path, line=line) from error
    except RecursionError as error:
        raise SettingError(f"this is nested over {DEEPEST} deep", path=path) from error
    except (ValueError, LookupError, TypeError, OverflowError, AttributeError) as error:
        # a tag that does not fit its value
        raise SettingError(f"a value cannot be read ({str(error).splitlines()[0]})", path=path) from error


def _strict_loader() -> Any:
    """Return a loader of plain YAML that refuses duplicate keys, aliases and nesting without end."""
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent):
                raise _problem("aliases are not supported", event)
            if self.depth > DEEPEST:
                raise _problem(f"nested over {DEEPEST} deep", event)
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    raise _problem(f"duplicate key {key.value!r:.60}", key)
                keys.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            return super().construct_mapping(node, deep)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            read = super().construct_object
            return _read_scalar(node, read) if isinstance(node, yaml.ScalarNode) else read(node, deep)

    def _problem(what: str, place: Any) -> yaml.MarkedYAMLError:
        return yaml.constructor.ConstructorError(problem=what, problem_mark=place.start_mark)

    return Loader


def _read_scalar(node: Any, read: Callable[[Any], Any]) -> Any:
    """Return the value of a scalar of YAML; a SettingError with its line if there is none."""
    try:
        if node.tag == "tag:yaml.org,2002:int":
            _check_digits(node.value)
        return read(node)
    except _LongNumberError as error:
        raise SettingError(str(error), line=node.start_mark.line + 1) from None
    except (ValueError, LookupError, OverflowError) as error:  # a date that is none, a tag that does not fit
        what = f"{node.value!r:.60} cannot be read, {error!s:.60}"
        raise SettingError(what, line=node.start_mark.line + 1) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r:.60}")
    return document


class _LongNumberError(ValueError):
    """A whole number of more digits than anything needs; to read it takes time that grows with their square."""

    def __init__(self, number: str) -> None:
        super().__init__(f"a number of {len(number.lstrip('+-')):,} digits is too long")
        self.number = number


def _check_digits(number: str) -> None:
    if len(number) > DIGITS:
        raise _LongNumberError(number)


def _whole(number: str) -> int:
    _check_digits(number)
    return int(number)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid in JSON")


def _is_deep(document: Any) -> bool:
    level = [document]
    for _ in range(DEEPEST):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return True


def _too_deep(path: str | PathLike[str], line: int | None) -> MegalabelError:
    return DataError(f"invalid JSON (nested over {DEEPEST} deep)", path=path, line=line)
