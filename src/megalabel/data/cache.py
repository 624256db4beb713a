"""The cache folder, and built data sets cached in it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from megalabel.disk import remove_unused
from megalabel.errors import DataError, MegalabelError, SettingError, WriteError, nearest
from megalabel.files import writing, writing_folder
from megalabel.progress import notice

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = [
    "cache_entries",
    "cache_folder",
    "cache_limit",
    "cached",
    "clear_cache",
    "trim_cache",
    "use_entry",
]

_ENTRY = "entry.json"
_KINDS = ("tokens", "data", "mapped")
_LIMIT = 10.0  # GB
_IN_USE = 3600.0  # seconds since its last use in which an entry is never removed to make room


class Entry(NamedTuple):
    """A folder of the cache: when it was last used, and its bytes."""

    path: Path
    used: float
    size: int


def cache_limit() -> float:
    """Return how many bytes the cache may hold: 10 GB, or $MEGALABEL_CACHE_LIMIT, in GB."""
    text = os.environ.get("MEGALABEL_CACHE_LIMIT", str(_LIMIT))
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise SettingError(f"MEGALABEL_CACHE_LIMIT is {text!r}", remedy="give a number of GB, such as 20")
    return limit * 1e9


def cache_entries() -> dict[str, list[Entry]]:
    """Return what the cache holds, by kind."""
    found: dict[str, list[Entry]] = {}
    for kind in _KINDS:
        found[kind] = []
        with suppress(OSError):
            for path in sorted(cache_folder(kind).iterdir()):
                with suppress(OSError):
                    size = sum(file.stat().st_size for file in path.iterdir())
                    found[kind].append(Entry(path, path.stat().st_mtime, size))
    return found


def use_entry(path: Path) -> None:
    """Note that an entry is used now."""
    with suppress(OSError):
        os.utime(path)


def trim_cache() -> None:
    """Remove the longest unused entries until the cache is within its limit; those in use in the last hour stay."""
    entries = sorted((entry for kind in cache_entries().values() for entry in kind), key=lambda entry: entry.used)
    held, limit, now = sum(entry.size for entry in entries), cache_limit(), time.time()
    for entry in entries:
        if held <= limit or now - entry.used < _IN_USE:
            return
        if remove_unused(entry.path):
            held -= entry.size


def clear_cache(kind: str | None = None) -> tuple[int, int]:
    """Remove all entries that no process uses, or those of one kind; return how many, and their bytes."""
    if kind is not None and kind not in _KINDS:
        raise SettingError(f"the cache has no {kind!r}", remedy=nearest(kind, _KINDS))
    entries = [entry for name, found in cache_entries().items() if kind in (None, name) for entry in found]
    removed = [entry for entry in entries if remove_unused(entry.path)]
    return len(removed), sum(entry.size for entry in removed)


def cache_folder(*parts: str) -> Path:
    """Return a folder of the cache; it need not exist yet.

    The cache is $MEGALABEL_CACHE, or megalabel under $XDG_CACHE_HOME, or ~/.cache/megalabel.
    """
    configured, shared = os.environ.get("MEGALABEL_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if configured:
        root = Path(configured).expanduser().absolute()
    elif Path(shared).is_absolute():
        root = Path(shared) / "megalabel"
    else:
        try:
            root = Path.home() / ".cache" / "megalabel"
        except RuntimeError as error:
            raise WriteError("there is no home folder to cache in", remedy="set MEGALABEL_CACHE to a folder") from error
    return root.joinpath(*parts)


def cached(
    key: Mapping[str, Any],
    build: Callable[[], Dataset],
    *,
    keep: Callable[[], bool] | None = None,
    say: Callable[[str], None] | None = None,
) -> Dataset:
    """Return the set cached under ``key``, or build it and cache it.

    ``key`` holds everything the set depends on, as JSON: its name under ``"set"``,
    settings, versions. ``keep`` is called after building and returns whether to cache
    the set. Files are checked against the hashes of when they were written; a damaged entry is
    rebuilt, with one line of notice. If the cache cannot be written, nothing is cached.
    Processes that build the same set at the same time each write a whole entry; the last one
    stays.
    """
    warn, say = say or notice, say or (lambda text: None)
    packed = orjson.dumps(dict(key), option=orjson.OPT_SORT_KEYS)
    try:
        folder = cache_folder("data", f"{key['set']}-{hashlib.sha256(packed).hexdigest()[:16]}")
    except WriteError as error:
        say(f"{key['set']} is not cached: {error}")
        return build()
    data = _read(folder, packed, say, warn)
    if data is None:
        data = build()
        if keep is not None and not keep():
            return data
        try:
            _keep(data, folder, packed)
        except WriteError as error:
            say(f"{key['set']} is not cached: {error}")
    return data


def _read(folder: Path, packed: bytes, say: Callable[[str], None], warn: Callable[[str], None]) -> Dataset | None:
    """Return the entry, or None if it does not exist or is damaged."""
    from megalabel.data.formats import Options, get_format

    try:
        if not (folder / _ENTRY).is_file():
            return None
        entry = orjson.loads((folder / _ENTRY).read_bytes())
        if entry["key"] != orjson.loads(packed) or entry["files"] != _hashes(folder):
            raise DataError("the files changed after they were written", path=folder)
        data = get_format("folder").read(folder, Options())
    except (MegalabelError, OSError, ValueError, KeyError, TypeError) as error:
        warn(f"a damaged cache entry is rebuilt: {error}")
        return None
    use_entry(folder)
    say(f"{data.name}: read from the cache, {folder}")
    return data


def _keep(data: Dataset, folder: Path, packed: bytes) -> None:
    from megalabel.data.formats import get_format

    with writing_folder(folder, overwrite=True) as temporary:
        get_format("folder").write(data, temporary)
        entry = {"key": orjson.loads(packed), "files": _hashes(temporary)}
        with writing(temporary / _ENTRY) as out:
            out.write(orjson.dumps(entry, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    trim_cache()


def _hashes(folder: Path) -> dict[str, str]:
    hashes = {}
    for path in sorted(folder.iterdir()):
        if path.name != _ENTRY:
            with path.open("rb") as stream:
                hashes[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashes
