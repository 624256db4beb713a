"""Checkpoints that a crash at any moment cannot spoil.

A checkpoint is a folder ``000007-step-1200`` (the seventh save, after 1,200 steps) with

    tensors.safetensors  arrays.safetensors  state.json  manifest.json

and, where several ranks trained, ``rows-00000.safetensors`` and so on: the rows of each rank's own
labels. Any number of ranks can read it. It is saved as everything is (:func:`megalabel.files.writing_folder`):
what has a visible name is complete. The manifest holds size and SHA-256 of every file; loading checks them and
passes over what does not match. One run writes to a folder at a time.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError
from torch import Tensor

from megalabel.disk import flush_folder
from megalabel.documents import check_regular, inside, read_json
from megalabel.errors import DataError, WriteError
from megalabel.files import writing_folder
from megalabel.ranks import ALONE, Ranks
from megalabel.settings import first_error
from megalabel.training.checkpoint.files import (
    hash_file,
    is_rows,
    load_tensors,
    write_bytes,
    write_rows,
    write_tensors,
)

__all__ = ["Checkpoint", "list_checkpoints", "load_checkpoint", "save_checkpoint"]

FORMAT = 1
TENSORS, ARRAYS, STATE, MANIFEST = "tensors.safetensors", "arrays.safetensors", "state.json", "manifest.json"
_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_LEFT = re.compile(r"\.\d{6,}-step-\d+(\.[0-9a-f]+)?\.(part|old)")


class ManifestFile(BaseModel):
    """Size and hash of a file."""

    model_config = ConfigDict(strict=True)
    bytes: NonNegativeInt
    sha256: str


class Manifest(BaseModel):
    """What a manifest says."""

    model_config = ConfigDict(strict=True)
    step: NonNegativeInt
    tags: list[str]
    files: dict[str, ManifestFile]


@dataclass(frozen=True)
class Checkpoint:
    """What was saved; tensors and arrays are mapped from the file, so copy what must outlive it."""

    path: Path
    step: int
    tags: tuple[str, ...]
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()  # one line for every newer checkpoint that could not be read
    parts: tuple[dict[str, Tensor], ...] = ()  # rows of tensors, one part for each rank that wrote

    def names(self) -> set[str]:
        """Return the names of all tensors, whole or in parts."""
        return set(self.tensors).union(*self.parts)

    def part(self, name: str, own: range | None) -> Tensor:
        """Return a tensor, or some rows of one that has a row for each label, however many ranks wrote it."""
        if name in self.tensors:
            return self.tensors[name] if own is None else self.tensors[name][own.start : own.stop]
        own = range(sum(len(part[name]) for part in self.parts)) if own is None else own
        rows, first = [], 0
        for part in self.parts:
            rows.append(part[name][max(0, own.start - first) : max(0, own.stop - first)])
            first += len(part[name])
        return torch.cat(rows)


def save_checkpoint(
    folder: str | PathLike[str],
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]] | None = None,
    *,
    rows: Mapping[str, Tensor] | None = None,
    ranks: Ranks = ALONE,
    tags: Iterable[str] = (),
    keep: int = 2,
) -> Path:
    """Save completely or not at all; return the new folder.

    ``state`` must be JSON-able; whole numbers may be of any size, keys must be text, and
    tuples come back as lists. Then older checkpoints are removed, except the ``keep``
    newest (this one included) and, for every tag ("best", say), the newest that has it.
    Where there is no room, a WriteError is raised and earlier checkpoints stay.

    With several ``ranks``, all call this together: each writes its own of ``rows``, the first one all the
    rest, of which every rank has the same. The folder must be on a disk that all of them share.

    >>> import tempfile, torch
    >>> folder = tempfile.mkdtemp()
    >>> for step in (10, 20, 30, 40):
    ...     path = save_checkpoint(folder, step, {"w": torch.ones(2)}, {"epoch": 1}, tags=["best"] * (step == 10))
    >>> [path.name for path in list_checkpoints(folder)]
    ['000004-step-40', '000003-step-30', '000001-step-10']
    >>> load_checkpoint(folder, tag="best").step
    10
    """
    folder, rows = Path(folder), dict(rows or {})
    if ranks.alone:
        tensors, rows = {**tensors, **rows}, {}
    text = json.dumps(dict(state)).encode()
    with ExitStack() as saving:
        name, hidden = ranks.broadcast(lambda: _begin(folder, step, saving))
        temporary = folder / hidden
        written = {} if ranks.alone else write_rows(temporary, rows, ranks)

        def finish() -> None:
            try:
                files = {
                    **written,
                    TENSORS: write_tensors(temporary / TENSORS, tensors),
                    ARRAYS: write_tensors(temporary / ARRAYS, arrays or {}),
                    STATE: write_bytes(temporary / STATE, [text]),
                }
                manifest = {"format": FORMAT, "step": step, "tags": sorted(set(tags)), "files": files}
                sealed = {**manifest, "sha256": _seal(manifest)}
                write_bytes(temporary / MANIFEST, [json.dumps(sealed, indent=1).encode()])
                saving.close()
            except (OSError, WriteError) as error:
                raise _failed(folder, error) from error

        ranks.broadcast(finish)
    if ranks.first:
        _prune(list_checkpoints(folder), max(keep, 1))
    return folder / name


def _begin(folder: Path, step: int, saving: ExitStack) -> tuple[str, str]:
    """Start to save a new checkpoint; return its name and the hidden one that it is filled under."""
    try:
        _prepare(folder)
        earlier = list_checkpoints(folder)
        name = f"{_number(earlier[0]) + 1 if earlier else 1:06d}-step-{step}"
        temporary = saving.enter_context(writing_folder(folder / name))
    except (OSError, WriteError) as error:
        raise _failed(folder, error) from error
    return name, temporary.name


def _failed(folder: Path, error: OSError | WriteError) -> WriteError:
    cause = error if isinstance(error, OSError) else error.__cause__
    reason = (cause.strerror or str(cause)).lower() if isinstance(cause, OSError) else str(error)
    return WriteError(f"could not save a checkpoint, {reason}; earlier ones are kept", path=folder)


def load_checkpoint(folder: str | PathLike[str], *, tag: str | None = None, ranks: Ranks = ALONE) -> Checkpoint:
    """Return the newest checkpoint that is whole, or the newest with this tag.

    Every file is checked against the manifest; with several ranks by the first, for all. A damaged
    checkpoint is passed over, with a line in ``notes``; when none is left that is a DataError.
    """
    name, notes = ranks.broadcast(lambda: _find(Path(folder), tag))
    return _open(Path(folder) / name, notes)


def _find(folder: Path, tag: str | None) -> tuple[str, list[str]]:
    """Return the name of the newest checkpoint that is whole, and what is wrong with newer ones."""
    notes: list[str] = []
    for path in list_checkpoints(folder):
        try:
            manifest = _read_manifest(path)
            if tag is None or tag in manifest["tags"]:
                _check(path, manifest)
                return path.name, notes
        except DataError as error:
            notes.append(f"passed over a damaged checkpoint: {error}")
    which = "" if tag is None else f" tagged {tag!r}"
    if notes:
        raise DataError(f"no readable checkpoint{which}: {notes[0]}", path=folder, remedy="train from the start")
    raise DataError(f"there is no checkpoint{which} in this folder", path=folder, remedy="train from the start")


def list_checkpoints(folder: str | PathLike[str]) -> list[Path]:
    """Return the folders of all checkpoints, newest first; they may still prove damaged."""
    try:
        folders = [path for path in Path(folder).iterdir() if _NAME.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(folders, key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _prepare(folder: Path) -> None:
    """Make the folder and clear what a crash has left in it."""
    if not folder.exists():
        folder.mkdir(parents=True)
        flush_folder(folder.parent)
    for path in folder.iterdir():
        if _LEFT.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _prune(newest_first: list[Path], keep: int) -> None:
    """Remove what is neither among the newest nor the newest of a tag; first by name, then for good."""
    tags: set[str] = set()
    for place, path in enumerate(newest_first):
        try:
            own = set(_read_manifest(path)["tags"])
        except DataError:
            own = set()
        if place >= keep and own <= tags:
            gone = path.with_name(f".{path.name}.old")
            with suppress(OSError):
                path.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        tags |= own


def _read_manifest(path: Path) -> dict[str, Any]:
    """Return a manifest that is whole, or raise a DataError."""
    try:
        manifest = read_json(path / MANIFEST)
    except DataError as error:
        raise DataError("its manifest cannot be read", path=path) from error
    if manifest.pop("sha256", None) != _seal(manifest):
        raise DataError("its manifest was changed", path=path)
    if manifest.get("format") != FORMAT:
        raise DataError(f"it has format {manifest.get('format')!r:.60}", path=path)
    try:
        return Manifest.model_validate(manifest).model_dump()
    except ValidationError as error:
        raise DataError(f"its manifest is invalid ({first_error(error)})", path=path) from None


def _check(path: Path, manifest: dict[str, Any]) -> None:
    """Raise a DataError for the first file that is not as it was written."""
    for name, record in manifest["files"].items():
        try:
            check_regular(inside(path, name))
            file = hash_file(path / name)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"{name} cannot be read, {reason}", path=path) from error
        if file["bytes"] != record["bytes"]:
            raise DataError(f"{name} has {file['bytes']:,} bytes instead of {record['bytes']:,}", path=path)
        if file["sha256"] != record["sha256"]:
            raise DataError(f"the content of {name} was changed", path=path)


def _open(path: Path, notes: Iterable[str]) -> Checkpoint:
    """Map the files of a checkpoint that has been checked."""
    manifest = _read_manifest(path)
    parts = sorted(name for name in manifest["files"] if is_rows(name))
    return Checkpoint(
        path=path,
        step=manifest["step"],
        tags=tuple(manifest["tags"]),
        tensors=load_tensors(path / TENSORS),
        state=json.loads((path / STATE).read_bytes()),  # checked against the manifest
        arrays={name: tensor.numpy() for name, tensor in load_tensors(path / ARRAYS).items()},
        notes=tuple(notes),
        parts=tuple(load_tensors(path / name) for name in parts),
    )
