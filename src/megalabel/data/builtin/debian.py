"""debian: packages of the apt lists and the packages they depend on, recommend or suggest.

Text: ``name synopsis``. Of alternatives (``lpr | cups-client``), the first one in the lists
counts. Labels with more than 450 train points (libc6 and the like) say nothing about a
package and are dropped.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.builtin._items import Items, split_items
from megalabel.data.builtin.settings import Setting
from megalabel.data.cache import cached
from megalabel.errors import DataError
from megalabel.files import decode
from megalabel.progress import track

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["SETTINGS", "build"]

VERSION = 1  # of this builder; a new number invalidates cached sets
TEST_SHARE = 0.2
MOST_POINTS = 450  # train points of one label
LISTS = Path("/var/lib/apt/lists")
RELATIONS = ("Pre-Depends", "Depends", "Recommends", "Suggests")
REMEDY = "run apt-get update on Debian or Ubuntu, or give debian:path=FILE with a Packages file"

# First bytes -> how to unpack the file: a Python module, or commands of which the first installed one is used.
PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"\xfd7zXZ": lzma.decompress,
    b"BZh": bz2.decompress,
}
UNPACKERS = {b"\x04\x22\x4d\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd"}
APT = "/usr/lib/apt/apt-helper"

SETTINGS = {
    "path": Setting("path", None, "a Packages file, or a folder of them; the lists of apt"),
    "seed": Setting("whole", 0, "which packages are test points"),
}


def build(values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
    """Return the set, from the cache if the same lists were read before."""
    files = _files(values["path"])
    content = hashlib.sha256()
    for path in files:
        content.update(_bytes(path))
    key = {"set": "debian", "builder": VERSION, "seed": values["seed"], "content": content.hexdigest()}
    return cached(key, lambda: _make(files, values["seed"], say), say=say)


def _files(path: Path | None) -> list[Path]:
    source = LISTS if path is None else path
    if source.is_file():
        return [source]
    files = sorted(file for file in source.glob("*Packages*") if re.search(r"(^|_)Packages(\.\w+)?$", file.name))
    if not files:
        what = "there are no package lists here" if source.is_dir() else "no such file or folder"
        raise DataError(what, path=source, remedy=REMEDY)
    return files


def _make(files: list[Path], seed: int, say: Callable[[str], None]) -> Dataset:
    texts: dict[str, str] = {}
    related: dict[str, list[list[str]]] = {}
    for path in files:
        for name, synopsis, others in track(_packages(path), f"reading {path.name}", unit="packages"):
            if name not in texts:  # the first list that has a package counts
                texts[name] = f"{name} {synopsis}".strip()
                related[name] = others
    uids = sorted(texts)
    number = {uid: i for i, uid in enumerate(uids)}
    chosen = (
        (name, next((other for other in group if other in number), None)) for name in uids for group in related[name]
    )
    pairs = [(number[name], number[other]) for name, other in chosen if other is not None]
    if not pairs:
        raise DataError("no package in these lists depends on another", path=files[0], remedy=REMEDY)
    say(f"debian: {len(uids):,} packages with {len(pairs):,} relations from {', '.join(path.name for path in files)}")
    return split_items(
        Items([texts[uid] for uid in uids], uids, np.array(pairs, dtype=np.int64)),
        name="debian",
        about="Debian packages and the packages they depend on, recommend or suggest",
        licence="Debian package metadata, under the licences of the packages",
        share=TEST_SHARE,
        seed=seed,
        max_points=MOST_POINTS,
    )


def _packages(path: Path) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Yield (name, synopsis, packages it names with their alternatives) of every stanza of a Packages file."""
    number = 1
    for stanza in _unpacked(path).split(b"\n\n"):
        fields: dict[str, str] = {}
        for line in decode(stanza, path, number).split("\n"):
            key, colon, value = line.partition(":")
            if colon and not key[:1].isspace():
                fields[key] = value.strip()
        number += stanza.count(b"\n") + 2
        if "Package" in fields:
            groups = ",".join(fields[key] for key in RELATIONS if key in fields).split(",")
            yield fields["Package"], fields.get("Description", ""), [_names(group) for group in groups]


def _names(group: str) -> list[str]:
    """Return the packages of ``python3:any (>= 3.11) | python3-minimal``, in order."""
    matches = (re.match(r"\s*([a-z0-9][a-z0-9+.-]+)", part) for part in group.split("|"))
    return [match[1] for match in matches if match]


def _bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"could not read, {(error.strerror or str(error)).lower()}", path=path) from error
    if not content:
        raise DataError("the file is empty", path=path, remedy=REMEDY)
    return content


def _unpacked(path: Path) -> bytes:
    content = _bytes(path)
    for magic, unpack in PACKED.items():
        if content.startswith(magic):
            try:
                return unpack(content)
            except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
                raise DataError(
                    f"the compressed file is damaged ({error})", path=path, remedy="download it again"
                ) from error
    for magic, tool in UNPACKERS.items():
        if content.startswith(magic):
            return _run(path, magic, tool)
    return content


def _run(path: Path, magic: bytes, tool: str) -> bytes:
    """Unpack with apt's own helper (which goes by the file's ending), else with the tool."""
    for command in ([APT, "cat-file", str(path)], [tool, "-dc", str(path)]):
        try:
            content = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
        except FileNotFoundError:
            continue
        except subprocess.CalledProcessError as error:
            raise DataError("the compressed file is damaged", path=path, remedy="download it again") from error
        if not content.startswith(magic):
            return content
    raise DataError(f"no program to unpack {tool} files", path=path, remedy=f"install {tool}")
