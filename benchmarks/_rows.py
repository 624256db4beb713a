"""Shared by what measures row by row: a run in a process of its own, known by what it was asked, written at once."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from _results import origin


@dataclass(frozen=True)
class Row:
    """One line of a study: what it is called, and the run behind it."""

    name: str
    recipe: str
    changes: tuple[str, ...] = ()
    after: Row | None = None  # a run that this one begins with, as NGAME before Renee


class RowFailed(RuntimeError):
    """The process of a row did not come to its end."""


def digest(row: Row) -> str:
    """Return a hash of what the recipe says; settings at their default do not count, nor new ones."""
    from megalabel.recipes.load_recipe import load_recipe

    recipe = load_recipe(row.recipe, row.changes)
    document = recipe.model_dump(mode="json", exclude_defaults=True)
    for name in ("about", "differs", "paper", "seed"):
        document.pop(name, None)
    if recipe.augment is not None and recipe.augment.kind != "gandalf":  # a default of its class, so not dumped
        document["augment"]["kind"] = recipe.augment.kind
    if row.after is not None:
        document["after"] = digest(row.after)
    return digest_of(document)


def digest_of(document: Any) -> str:
    """Return a short hash of something that can be written as JSON."""
    return blake2b(json.dumps(document, sort_keys=True).encode(), digest_size=8).hexdigest()


def rows_there(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a study that are there."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


def key_of(row: Row, data: str, seed: int) -> dict[str, Any]:
    """Return what a stored row is known by: what its recipe says, the data set's name, the seed."""
    return {"digest": digest(row), "data": Path(data).name, "seed": seed}


def is_of(result: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Say whether a stored row has this key."""
    return all(result.get(name) == value for name, value in key.items())


def row_of(path: Path, row: Row, data: str, seed: int, script: str, **more: Any) -> dict[str, Any]:
    """Return a row of a study: the one that is there, else what ``script REQUEST OUT`` finds, written at once.

    ``more`` is part of the request and of what the row is known by.
    """
    key = {**key_of(row, data, seed), **more}
    for result in rows_there(path):
        if is_of(result, key):
            return result
    request = {"name": row.name, "recipe": row.recipe, "changes": row.changes, "data": data, "seed": seed, **more}
    if row.after is not None:
        request["after"] = {"recipe": row.after.recipe, "changes": row.after.changes}
    try:
        result = in_own_process([sys.executable, script], request) | {"digest": key["digest"]}
    except RowFailed as error:
        raise SystemExit(f"{row.name} failed: {error}") from error
    add_row(path, result)
    return result


def add_row(path: Path, result: Mapping[str, Any]) -> None:
    """Add a row to a file of rows; studies that run side by side do not lose each other's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_rows(path, {"machine": origin("torch"), "rows": [*rows_there(path), dict(result)]})


def write_rows(path: Path, document: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write a file of rows whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def in_own_process(
    command: Sequence[str],
    request: Mapping[str, Any],
    *,
    variables: Mapping[str, str] | None = None,
    minutes: float | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run ``command REQUEST OUT`` and return the JSON it wrote to OUT."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        try:
            done = subprocess.run(
                [*command, json.dumps(request), str(out)],
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=None if variables is None else {**os.environ, **variables},
                timeout=None if minutes is None else 60 * minutes,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RowFailed(f"stopped after {minutes:g} minutes") from None
        if done.returncode or not out.is_file():
            raise RowFailed(f"exit code {done.returncode}\n{done.stderr[-4_000:]}")
        result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return result
