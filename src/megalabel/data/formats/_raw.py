"""Shared by formats that keep one text on one line (``raw/trn_X.txt``) and have no uids.

What a line cannot hold goes to a side file, ``raw/trn_X.rows.jsonl``: line i is
``{"uid": …, "text": …}``, with the text only where the raw line is not exactly it. The
side file is written only when needed; in the raw file line breaks become spaces, so that
programs that know nothing of the side file still work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from megalabel.data.dataset import Dataset
from megalabel.data.formats._rows import PARTS
from megalabel.data.formats.folder import dump, string
from megalabel.data.texts import TextWriter, pack_texts
from megalabel.errors import DataError
from megalabel.files import BOM, decode, find, json_rows, read_lines, writing

__all__ = ["find_raw", "raw_names", "read_raw", "write_raw"]

_LABELS = ("raw/Y.txt", "raw_data/label.raw.txt", "lbl.raw.txt", "Y.txt", "Yf.txt")
_POINTS = ("raw/{stem}_X.txt", "raw_data/{split}.raw.txt", "{stem}_X.txt", "{stem}.raw.txt")
_BREAK = re.compile(r"\r\n|\r|\n")
_ARROW = "->"


def raw_names(split: str | None) -> list[str]:
    """Return the names a raw file may have, best first; None means the labels."""
    return list(_LABELS) if split is None else [name.format(stem=PARTS[split], split=split) for name in _POINTS]


def find_raw(folder: Path, split: str | None) -> Path:
    """Return the raw file of a split, or of the labels, or raise a DataError with the valid names."""
    path = find(folder, *raw_names(split))
    if path is None:
        what = "the label texts" if split is None else f"the {split} texts"
        names = ", ".join(raw_names(split))
        raise DataError(f"{what} are missing", path=folder, remedy=f"put them, one per line, in one of: {names}")
    return path


def read_raw(path: Path, prefix: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return (texts, uids) of a raw file, with its side file if there is one.

    Without a side file, uids are ``prefix-0``, ``prefix-1``, …, unless every line has the
    form ``uid->text``, as in some downloads of the extreme classification repository.
    """
    source = (decode(line.removesuffix(b"\r"), path, number) for number, line in read_lines(path))
    lines = pack_texts(source)
    side = _side(path)
    if side.is_file():
        return _read_side(side, path, lines)
    if all(_ARROW in line for line in lines):
        texts = pack_texts(line.partition(_ARROW)[2] for line in lines)
        return texts, pack_texts(line.partition(_ARROW)[0] for line in lines)
    return lines, pack_texts(_generated(prefix, len(lines)))


def write_raw(data: Dataset, folder: Path) -> None:
    """Write raw/trn_X.txt, its siblings and raw/Y.txt, with side files where needed."""
    (folder / "raw").mkdir()
    for name, split in data.splits.items():
        _write_one(folder / raw_names(name)[0], split.texts, split.uids, PARTS[name])
    _write_one(folder / raw_names(None)[0], data.labels.texts, data.labels.uids, "lbl")


def _write_one(path: Path, texts: Sequence[str], uids: Sequence[str], prefix: str) -> None:
    lines = [_BREAK.sub(" ", text) for text in texts]
    exact = [line == text and not line.startswith(BOM.decode()) for line, text in zip(lines, texts, strict=True)]
    with writing(path) as out:
        for line, uid in zip(lines, uids, strict=True):
            try:
                out.write(f"{line}\n".encode())
            except UnicodeEncodeError as error:
                raise DataError(f"the text of {uid!r} cannot be written ({error.reason})", path=path) from error
    if all(exact) and list(uids) == list(_generated(prefix, len(uids))) and not all(_ARROW in line for line in lines):
        return
    with writing(_side(path)) as out:
        for uid, text, same in zip(uids, texts, exact, strict=True):
            out.write(dump({"uid": uid} if same else {"uid": uid, "text": text}, _side(path)))


def _read_side(side: Path, path: Path, lines: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    texts, uids = TextWriter(), TextWriter()
    for line, numbered in zip_longest(lines, json_rows(side)):
        if line is None or numbered is None:
            number = sum(1 for _ in json_rows(side))
            raise DataError(f"{number:,} rows, but {path.name} has {len(lines):,} lines", path=side)
        number, row = numbered
        uids.append(string(row, "uid", side, number))
        texts.append(string(row, "text", side, number) if "text" in row else line)
    return texts.finish(), uids.finish()


def _side(path: Path) -> Path:
    return path.parent / f"{path.name.removesuffix('.gz').removesuffix('.txt')}.rows.jsonl"


def _generated(prefix: str, size: int) -> Iterator[str]:
    return (f"{prefix}-{i}" for i in range(size))
