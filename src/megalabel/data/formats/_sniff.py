"""Shared by ``looks_like``: a first look into a file that may be anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from megalabel.errors import DataError
from megalabel.files import BOM, open_bytes

__all__ = ["first_json", "first_line", "head"]


def head(path: Path, size: int = 65536) -> bytes:
    """Return the first bytes of a plain or gzip file; nothing if it cannot be read."""
    try:
        with open_bytes(path) as stream:
            return stream.read(size).removeprefix(BOM)
    except DataError:
        return b""


def first_line(path: Path) -> str | None:
    """Return the first line, without its line break; None if the file is empty or not UTF-8."""
    try:
        line = head(path).split(b"\n", 1)[0].decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError:
        return None
    return line or None


def first_json(path: Path) -> dict[str, Any]:
    """Return the JSON object on the first line; an empty one if there is none."""
    import orjson

    try:
        row = orjson.loads(head(path, 1 << 24).split(b"\n", 1)[0])
    except orjson.JSONDecodeError:
        return {}
    return row if isinstance(row, dict) else {}
