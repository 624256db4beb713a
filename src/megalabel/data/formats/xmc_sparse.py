"""The sparse text files of the extreme classification repository, with raw texts beside them.

``trn_X_Y.txt`` and ``tst_X_Y.txt`` start with ``rows columns``; line i then holds
``label:value`` pairs of point i, the value 1 or a weight. The texts are, one per line, in
``raw/trn_X.txt``, ``raw_data/train.raw.txt`` or the like. Optional
``filter_labels_train.txt`` and ``filter_labels_test.txt`` hold ``row label`` pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from scipy import sparse

from megalabel.data.dataset import Dataset, Split
from megalabel.data.formats import Options
from megalabel.data.formats._raw import find_raw, read_raw, write_raw
from megalabel.data.formats._rows import PARTS, RowCollector, show_weight
from megalabel.data.formats._sniff import first_line
from megalabel.data.formats.dexml import read_labels
from megalabel.data.formats.folder import assemble, make_split, write_card, write_filters
from megalabel.documents import parse_number, parse_whole
from megalabel.errors import DataError
from megalabel.files import decode, find, need, read_lines, writing
from megalabel.progress import track

__all__ = ["looks_like", "read", "write"]


def looks_like(path: Path) -> str | None:
    """Detect the folder by trn_X_Y.txt, and a file of the older kind, which has no texts, by its header."""
    if path.is_dir():
        return "it holds trn_X_Y.txt" if find(path, "trn_X_Y.txt") else None
    header = (first_line(path) or "").split()
    if len(header) in (2, 3) and all(part.isascii() and part.isdigit() for part in header):
        return f"it starts with the sizes {' '.join(header)}"
    return None


def read(path: Path, options: Options) -> Dataset:
    """Read the folder; any error in it is one DataError with file and line."""
    if path.is_file():
        _header(path, *next(read_lines(path)))
        raise DataError(
            "this file holds labels but no texts",
            path=path,
            remedy="give the folder that holds trn_X_Y.txt, tst_X_Y.txt and raw texts",
        )
    sources = {name: find(path, f"{stem}_X_Y.txt") for name, stem in PARTS.items()}
    sources["train"] = need(path, "trn_X_Y.txt")
    labels = read_labels(path)
    splits = {}
    for name, source in sources.items():
        if source is not None:
            targets = _read_matrix(source, len(labels))
            raw = find_raw(path, name)
            texts, uids = read_raw(raw, PARTS[name])
            if len(texts) != targets.shape[0]:
                raise DataError(f"{len(texts):,} lines, but {source.name} has {targets.shape[0]:,} rows", path=raw)
            splits[name] = make_split(source, texts, uids, targets)
    return assemble(path, splits, labels, options)


def write(data: Dataset, folder: Path) -> None:
    """Write the set into an empty folder."""
    write_raw(data, folder)
    for name, split in data.splits.items():
        target = folder / f"{PARTS[name]}_X_Y.txt"
        with writing(target) as out:
            rows, columns = split.targets.shape
            out.write(f"{rows} {columns}\n".encode())
            for line in track(_lines(split), f"writing {target.name}", total=rows):
                out.write(line)
    write_filters(data, folder, "filter_labels_{split}.txt")
    write_card(data, folder)


def _lines(split: Split) -> Iterator[bytes]:
    indptr, indices, values = split.targets.indptr.tolist(), split.targets.indices, split.targets.data
    for start, stop in pairwise(indptr):
        cells = zip(indices[start:stop].tolist(), values[start:stop].tolist(), strict=True)
        yield (" ".join(f"{label}:{show_weight(value)}" for label, value in cells) + "\n").encode()


def _header(path: Path, number: int, line: bytes) -> tuple[int, int]:
    parts = line.split()
    if len(parts) == 3 and all(part.isdigit() for part in parts):
        raise DataError(
            "this is the older format (points, features, labels), which holds numbers but no texts",
            path=path,
            line=number,
            remedy="download the raw texts of the set; megalabel learns from texts",
        )
    if len(parts) != 2 or not all(part.isdigit() and len(part) < 19 for part in parts):
        shown = decode(line, path, number)
        raise DataError(f"expected a header 'rows columns', not {shown[:60]!r}", path=path, line=number)
    return int(parts[0]), int(parts[1])


def _read_matrix(path: Path, labels: int) -> sparse.csr_matrix:
    lines = read_lines(path)
    rows, columns = _header(path, *next(lines))
    if columns != labels:
        what = f"the header gives {columns:,} columns, but there are {labels:,} label texts"
        raise DataError(what, path=path, line=1)
    collector = RowCollector(path, labels)
    for number, line in lines:
        cells = line.split()
        if len(collector) < rows:
            collector.add(number, *_parse(cells, path, number))
        elif cells:
            raise DataError(f"the header gives {rows:,} rows, but there are more", path=path, line=number)
    if len(collector) < rows:
        raise DataError(f"the header gives {rows:,} rows, but there are {len(collector):,}", path=path, line=1)
    return collector.matrix()


def _parse(cells: list[bytes], path: Path, number: int) -> tuple[list[int], list[float]]:
    ids: list[int] = []
    values: list[float] = []
    for cell in cells:
        label, _, value = cell.partition(b":")
        try:
            ids.append(parse_whole(label))
            values.append(parse_number(value))
        except ValueError:
            shown = decode(cell, path, number)
            raise DataError(f"expected 'label:value', not {shown!r:.60}", path=path, line=number) from None
    return ids, values
