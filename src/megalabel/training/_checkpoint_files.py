"""Files of a checkpoint: written straight from memory, hashed on the way, flushed to the disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from megalabel.errors import DataError

__all__ = ["FileRecord", "flush_folder", "hash_file", "load_tensors", "write_bytes", "write_tensors"]

FileRecord = dict[str, Any]  # {"bytes": size, "sha256": hex digits}

BLOCK = 1 << 24
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
            hashed = hashing.submit(digest.update, block)  # in the background while we write
            done = 0
            while done < len(block):
                done += out.write(block[done:])
            hashed.result()
            size += len(block)
        os.fsync(out.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def hash_file(path: Path) -> FileRecord:
    """Return the size and hash of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return {"bytes": stream.tell(), "sha256": digest.hexdigest()}


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, so that a rename in it outlives a power cut."""
    if os.name == "nt":
        return  # Windows cannot open a folder; it keeps names in its own journal
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
        raise DataError(f"{name!r} cannot be kept in a checkpoint, it is {kind}", remedy="make it a dense number type")
    return NAMES[dtype]
