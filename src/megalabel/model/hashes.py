"""The hashes by which a saved model is known to be whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from megalabel.documents import check_regular, inside
from megalabel.errors import DataError

__all__ = ["check_files", "files_in", "seal_of", "sha256_of"]


def seal_of(card: Mapping[str, Any]) -> str:
    """Return the hash of a card."""
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()


def files_in(folder: Path) -> list[Path]:
    """Return all files under a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sha256_of(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """Raise a DataError for the first file that is not as it was saved, and for pipes and devices."""
    path = folder
    try:
        for path in folder.rglob("*"):
            check_regular(path)
        for name, expected in hashes.items():
            path = inside(folder, name)
            if sha256_of(path) != expected:
                raise DataError("this file changed after it was saved", path=path, remedy="copy the model again")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"this file cannot be read, {reason}", path=path) from error
