"""The folder of a run: held by one training at a time, and never a mix of two runs."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack, suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.documents import read_json
from megalabel.errors import DataError, LostRankError, MegalabelError, WriteError
from megalabel.files import make_folder, writing
from megalabel.locks import holding
from megalabel.recipes.load_recipe import dump_recipe, load_recipe
from megalabel.training.checkpoint import list_checkpoints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["check_complete", "fingerprint", "finish_folder", "identify", "is_finished", "on_device", "prepare_folder"]

TEACHER = "teacher"  # what a teacher answered
FINISHED = "finished.json"  # says that the model is complete, and what it was trained on


def prepare_folder(folder: Path, recipe: Recipe, resume: bool, lock: ExitStack) -> None:
    """Make the run folder, hold it, and write the resolved recipe; or refuse to mix two runs.

    If a mistake of the user ends ``lock`` before the first step of a new run, what was made is removed again.
    """
    known, own = folder / "recipe.yaml", ("model", "checkpoints", "metrics.jsonl")
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    if not known.is_file():
        if resume:
            raise DataError("there is no run here to resume", path=folder, remedy="leave --resume out")
        if others := [name for name in own if (folder / name).exists()]:
            what = f"{others[0]!r} is in this folder, but does not belong to a run"
            raise WriteError(what, path=folder, remedy="choose another folder")
        make_folder(folder)
    busy, remedy = "another process trains in this folder", "wait until it is done, or choose another folder"
    path = folder.resolve().with_name(f".{folder.resolve().name}.lock")
    lock.enter_context(holding(path, target=folder, busy=busy, remedy=remedy, patience=0.0, say=None))
    if resume:
        before, now = (on_device(each, "auto").model_dump(mode="json") for each in (load_recipe(known), recipe))
        difference = _difference(before, now)
        if difference is not None:
            raise DataError(
                f"this run was started with another recipe, {difference}", path=folder,
                remedy="resume with the same recipe, or start a new run in another folder",
            )  # fmt: skip
        return
    if any(list_checkpoints(place) for place in (folder / "checkpoints").glob("*")):
        raise _used(folder)
    check_complete(folder)
    lock.push(lambda _, error, __: _remove_unused(folder, missing) if _is_mistake(error) else None)
    with writing(known) as out:
        out.write(dump_recipe(recipe).encode())


def check_complete(folder: Path) -> None:
    """Refuse a folder with the model of a run; one without may be in use, which only its lock tells."""
    if (folder / "recipe.yaml").is_file() and (folder / "model").exists():
        raise _used(folder)


def _used(folder: Path) -> WriteError:
    return WriteError("this folder holds a run already", path=folder, remedy="choose another, or --resume")


def finish_folder(folder: Path, identity: Mapping[str, str]) -> None:
    """Remove what a run whose model is saved needs no more; what it was is kept, for ``--resume``."""
    with writing(folder / FINISHED) as out:
        out.write(json.dumps({"identity": dict(identity)}).encode() + b"\n")
    for name in ("checkpoints", "stages", TEACHER):
        shutil.rmtree(folder / name, ignore_errors=True)


def is_finished(folder: Path, identity: Mapping[str, str]) -> bool:
    """Return whether the run is complete and only its model is left; raise a DataError if it was another run."""
    if not (folder / FINISHED).is_file() or not (folder / "model" / "model.json").is_file():
        return False
    known = read_json(folder / FINISHED).get("identity")
    for key, value in identity.items():
        if not isinstance(known, dict) or known.get(key) != value:
            raise DataError(
                f"this run was started with {'other' if key == 'data' else 'another'} {key}", path=folder,
                remedy=f"resume with the same {key}, or start a new run in another folder",
            )  # fmt: skip
    return True


def _is_mistake(error: BaseException | None) -> bool:
    return isinstance(error, MegalabelError) and not isinstance(error, LostRankError)


def _remove_unused(folder: Path, missing: Sequence[Path]) -> None:
    """Remove a run without a single step, and the folders that were made for it, innermost first."""
    log = folder / "metrics.jsonl"
    with suppress(OSError):
        if any((folder / name).exists() for name in ("model", "checkpoints", "stages", TEACHER)):
            return
        if log.exists() and log.stat().st_size:
            return
        for path in (log, folder / "recipe.yaml"):
            path.unlink(missing_ok=True)
        for each in missing:
            each.rmdir()


def on_device(recipe: Recipe, device: str) -> Recipe:
    """Return the recipe with another device; a run may be resumed on any."""
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"device": device})})


def identify(recipe: Recipe, data: Dataset) -> dict[str, str]:
    """Return hashes of recipe and data, to tell whether a run is resumed with the same ones; the device may differ."""
    return {"recipe": _digest(dump_recipe(on_device(recipe, "auto"))), "data": fingerprint(data)}


def fingerprint(data: Dataset) -> str:
    """Return a hash of texts and relevance, to tell whether a run is resumed on the same data."""
    digest = blake2b(digest_size=16)
    for split in data.splits.values():
        for array in (split.targets.indptr, split.targets.indices, split.targets.data, split.filter):
            digest.update(np.ascontiguousarray(array).data)
        for text in split.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    for text in data.labels.texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _difference(before: Any, now: Any, key: str = "") -> str | None:
    """Return the first place where two documents differ, with both values; None if they are equal."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*before, *now])
        differences = (_difference(before.get(part), now.get(part), f"{key}.{part}".lstrip(".")) for part in keys)
        return next((line for line in differences if line is not None), None)
    return None if before == now else f"{key} was {before} and is now {now}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
