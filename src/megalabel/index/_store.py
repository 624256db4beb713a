"""Indexes on disk: files and a card with their sizes and hashes, completely or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, ValidationError

from megalabel.documents import open_regular, read_json
from megalabel.errors import DataError, WriteError
from megalabel.files import writing, writing_folder
from megalabel.settings import first_error

if TYPE_CHECKING:
    from os import PathLike

    from torch import Tensor

__all__ = ["VECTORS", "read_card", "read_faiss", "read_kind", "read_vectors", "write_index"]

FORMAT = 2
READABLE = (1, 2)  # 1 has no removed labels
CARD, FAISS, VECTORS = "index.json", "index.faiss", "vectors.npy"
_AGAIN = "build the index again"


class FileRecord(BaseModel):
    """Size and hash of a file."""

    model_config = ConfigDict(strict=True, extra="forbid")
    bytes: NonNegativeInt
    sha256: str


class IndexCard(BaseModel):
    """What every index keeps in its card; kinds add settings of their own."""

    model_config = ConfigDict(strict=True, extra="ignore")
    kind: str
    labels: NonNegativeInt
    dim: NonNegativeInt
    settings: dict[str, NonNegativeFloat | None]
    files: dict[Literal["index.faiss", "vectors.npy"], FileRecord]
    removed: list[NonNegativeInt] = []


def write_index(
    folder: str | PathLike[str], index: Any, vectors: Tensor | None, card: Mapping[str, Any], *, overwrite: bool
) -> None:
    """Write index.faiss if there is one, the vectors if faiss does not hold them unchanged, and index.json."""
    with writing_folder(folder, overwrite=overwrite) as temporary:
        if index is not None:
            _write_faiss(index, temporary / FAISS)
        if vectors is not None:
            with writing(temporary / VECTORS) as out:
                np.save(out, vectors.numpy(), allow_pickle=False)
        files = {name: _record(temporary / name) for name in (FAISS, VECTORS) if (temporary / name).is_file()}
        document = {"format": FORMAT, **card, "files": files}
        with writing(temporary / CARD) as out:
            out.write(json.dumps({**document, "seal": _seal(document)}, indent=2).encode() + b"\n")


def _write_faiss(index: Any, path: Path) -> None:
    import faiss

    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise WriteError(f"could not write ({_reason(error)}); nothing was changed", path=path) from error
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def read_kind(folder: str | PathLike[str]) -> str:
    """Return the kind of index in the card of a folder."""
    return str(_card(Path(folder))["kind"])


def read_card(folder: str | PathLike[str], kind: str) -> dict[str, Any]:
    """Return the card of an index of this kind after checking every file against it, or raise a DataError."""
    card = _card(Path(folder))
    if card["kind"] != kind:
        raise DataError(f"this index is of kind {card['kind']}, not {kind}", path=folder)
    for name in (FAISS, VECTORS):
        if name in card["files"]:
            _check_file(Path(folder) / name, card["files"][name])
    return card


def _card(folder: Path) -> dict[str, Any]:
    path = folder / CARD
    if not path.is_file():
        raise DataError("this folder holds no index", path=folder, remedy="give the folder of a saved index")
    try:
        card = read_json(path)
        seal, format = card.pop("seal"), card["format"]
    except (DataError, KeyError) as error:
        raise DataError("this is not the card of an index, or it is damaged", path=path, remedy=_AGAIN) from error
    if seal != _seal(card):
        raise DataError("this file changed after it was saved", path=path, remedy=_AGAIN)
    if format not in READABLE:
        raise DataError(f"this index has format {format}, not {FORMAT}", path=path, remedy="update megalabel")
    try:
        removed = IndexCard.model_validate(card).removed
    except ValidationError as error:
        raise DataError(f"this index card is invalid ({first_error(error)})", path=path, remedy=_AGAIN) from None
    if removed and max(removed) >= card["labels"]:
        raise DataError(f"the removed label {max(removed)} is not in the index", path=path, remedy=_AGAIN)
    return {**card, "removed": removed}


def read_faiss(folder: str | PathLike[str], flag: str, kind: str, labels: int) -> Any:
    """Return the faiss index, mapped into memory, after checking its class and size."""
    import faiss

    path = Path(folder) / FAISS
    try:
        index = faiss.read_index(str(path), getattr(faiss, flag))
    except RuntimeError as error:
        raise DataError(f"faiss cannot read this file ({_reason(error)})", path=path, remedy=_AGAIN) from error
    if type(index).__name__ != kind or index.ntotal != labels:
        what = f"this is {type(index).__name__} of {index.ntotal:,} vectors, not {kind} of {labels:,}"
        raise DataError(what, path=path, remedy=_AGAIN)
    return index


def read_vectors(folder: str | PathLike[str], shape: tuple[int, int]) -> Tensor:
    """Return the vectors, mapped into memory: pages are read on demand, and the file is never changed."""
    path = Path(folder) / VECTORS
    try:
        vectors = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError("these vectors cannot be read", path=path, remedy=_AGAIN) from error
    if vectors.shape != shape or vectors.dtype != np.float32:
        raise DataError(
            f"the vectors are {vectors.dtype} {vectors.shape}, not float32 {shape}", path=path, remedy=_AGAIN
        )
    return torch.from_numpy(vectors)


def _check_file(path: Path, record: Mapping[str, Any]) -> None:
    try:
        size = path.stat().st_size
        whole = size == record["bytes"] and _record(path) == record
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"this file cannot be read, {reason}", path=path, remedy=_AGAIN) from error
    if size != record["bytes"]:
        raise DataError(f"this file has {size:,} bytes instead of {record['bytes']:,}", path=path, remedy=_AGAIN)
    if not whole:
        raise DataError("this file changed after it was saved", path=path, remedy=_AGAIN)


def _record(path: Path) -> dict[str, Any]:
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return {"bytes": stream.tell(), "sha256": digest.hexdigest()}


def _seal(card: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()


def _reason(error: RuntimeError) -> str:
    """Return the last sentence of a message of faiss, without its source lines."""
    return str(error).strip().rpartition("\n")[2].rpartition("Error: ")[2] or "no reason given"
