"""The rows of labels of each rank, in files of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from megalabel.errors import WriteError
from megalabel.training._checkpoint_files import FileRecord, flush_folder, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.ranks import Ranks

__all__ = ["is_rows", "write_rows"]

_NAME = re.compile(r"rows-\d{5,}\.safetensors")
_WORDS = 4  # of 64 bits that hold a SHA-256


def is_rows(name: str) -> bool:
    """Say whether a file of a checkpoint holds rows of one rank."""
    return _NAME.fullmatch(name) is not None


def write_rows(folder: Path, rows: Mapping[str, Tensor], ranks: Ranks) -> dict[str, FileRecord]:
    """Write this rank's rows into the folder; return what all ranks wrote there, by the names of files.

    Where one of them cannot write, all raise a WriteError.
    """
    failed, record = "", FileRecord(bytes=-1, sha256="0" * 64)
    try:
        record = write_tensors(folder / _name(ranks.rank), rows)
        flush_folder(folder)
    except OSError as error:
        failed = (error.strerror or str(error)).lower()
    words = [record["bytes"], *_to_words(record["sha256"])]
    found = ranks.gather(torch.tensor([words], dtype=torch.int64), [1] * ranks.world).tolist()
    bad = [rank for rank, (size, *_) in enumerate(found) if size < 0]
    if bad:
        what = f"rank {bad[0]} could not write its part of a checkpoint{failed and ', '}{failed}; earlier ones are kept"
        remedy = "see that the run folder is on a disk that all ranks share, with room"
        raise WriteError(what, path=folder.parent, remedy=remedy)
    return {_name(rank): {"bytes": size, "sha256": _from_words(rest)} for rank, (size, *rest) in enumerate(found)}


def _name(rank: int) -> str:
    return f"rows-{rank:05d}.safetensors"


def _to_words(digest: str) -> list[int]:
    raw = bytes.fromhex(digest)
    return [int.from_bytes(raw[8 * place : 8 * place + 8], "little", signed=True) for place in range(_WORDS)]


def _from_words(words: list[int]) -> str:
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words).hex()
