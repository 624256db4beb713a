"""Files of a checkpoint: written straight from memory, hashed on the way, flushed to the disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from megalabel.disk import flush_folder
from megalabel.errors import DataError, WriteError

if TYPE_CHECKING:
    from megalabel.ranks import Ranks

__all__ = [
    "FileRecord",
    "hash_file",
    "is_rows",
    "load_tensors",
    "write_bytes",
    "write_rows",
    "write_tensors",
]

FileRecord = dict[str, Any]  # {"bytes": size, "sha256": hex digits}

BLOCK = 1 << 24
_LARGE = 1 << 20  # bytes that are worth a thread
_ROWS = re.compile(r"rows-\d{5,}\.safetensors")
_WORDS = 4  # of 64 bits that hold a SHA-256
# The names of dtypes in a safetensors header.
NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


def write_tensors(path: Path, tensors: Mapping[str, Tensor | NDArray[Any]]) -> FileRecord:
    """Write tensors or arrays as a safetensors file, one after the other and without a copy of the whole.

    What is contiguous in main memory goes to the file as it is; other tensors are packed
    or fetched from their device one at a time.
    """
    # The widest types first: every tensor then starts at a multiple of its item size, as mapping it asks for.
    order = sorted(tensors, key=lambda name: (-_item_size(tensors[name]), name))
    header: dict[str, Any] = {}
    begin = 0
    for name in order:
        tensor = tensors[name]
        end = begin + _item_size(tensor) * int(np.prod(tensor.shape, dtype=np.int64))
        header[name] = {"dtype": _dtype(name, tensor), "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    start = len(head).to_bytes(8, "little") + head
    return write_bytes(path, chain([start], (_raw(tensors[name]) for name in order)))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Map a safetensors file: memory fills as tensors are read, and writing to them leaves the file alone."""
    from safetensors.torch import load_file

    return load_file(path)


def write_bytes(path: Path, parts: Iterable[Any]) -> FileRecord:
    """Write buffers one after the other to a new file, flush it to the disk, and return its size and hash."""
    digest, size = hashlib.sha256(), 0
    with path.open("xb", buffering=0) as out, ThreadPoolExecutor(1) as hashing:
        for block in _blocks(parts):
            hashed = None
            if len(block) >= _LARGE:  # hash in the background while we write
                hashed = hashing.submit(digest.update, block)
            else:
                digest.update(block)
            done = 0
            while done < len(block):
                done += out.write(block[done:])
            if hashed is not None:
                hashed.result()
            size += len(block)
        os.fsync(out.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def hash_file(path: Path) -> FileRecord:
    """Return the size and hash of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return {"bytes": stream.tell(), "sha256": digest.hexdigest()}


def _blocks(parts: Iterable[Any]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        for begin in range(0, len(view), BLOCK):
            yield view[begin : begin + BLOCK]


def _raw(tensor: Tensor | NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a tensor, shared with it when it is contiguous in main memory."""
    if isinstance(tensor, Tensor):
        return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)


def _item_size(tensor: Tensor | NDArray[Any]) -> int:
    return tensor.element_size() if isinstance(tensor, Tensor) else tensor.itemsize


def _dtype(name: str, tensor: Tensor | NDArray[Any]) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in NAMES or (isinstance(tensor, Tensor) and tensor.layout != torch.strided):
        kind = "a sparse tensor" if dtype in NAMES else f"of type {dtype}"
        raise DataError(f"{name!r} cannot be saved in a checkpoint: it is {kind}", remedy="make it a dense number type")
    return NAMES[dtype]


# ------------------------------------------------------------------ rows of labels, one file for each rank


def is_rows(name: str) -> bool:
    """Return whether a file of a checkpoint holds rows of one rank."""
    return _ROWS.fullmatch(name) is not None


def write_rows(folder: Path, rows: Mapping[str, Tensor], ranks: Ranks) -> dict[str, FileRecord]:
    """Write this rank's rows into the folder; return the records of what all ranks wrote there, by file name.

    If one of them cannot write, all raise a WriteError.
    """
    failed, record = "", FileRecord(bytes=-1, sha256="0" * 64)
    try:
        record = write_tensors(folder / _name(ranks.rank), rows)
        flush_folder(folder)
    except OSError as error:
        failed = (error.strerror or str(error)).lower()
    words = [record["bytes"], *_to_words(record["sha256"])]
    records = ranks.gather(torch.tensor([words], dtype=torch.int64), [1] * ranks.world).tolist()
    bad = [rank for rank, (size, *_) in enumerate(records) if size < 0]
    if bad:
        what = f"rank {bad[0]} could not write its part of a checkpoint{failed and ', '}{failed}; earlier ones are kept"
        remedy = "see that the run folder is on a disk that all ranks share, with room"
        raise WriteError(what, path=folder.parent, remedy=remedy)
    return {_name(rank): {"bytes": size, "sha256": _from_words(rest)} for rank, (size, *rest) in enumerate(records)}


def _name(rank: int) -> str:
    return f"rows-{rank:05d}.safetensors"


def _to_words(digest: str) -> list[int]:
    raw = bytes.fromhex(digest)
    return [int.from_bytes(raw[8 * place : 8 * place + 8], "little", signed=True) for place in range(_WORDS)]


def _from_words(words: list[int]) -> str:
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words).hex()
