"""Strings in one array of bytes, which may be mapped from disk: many texts that take no memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from megalabel.data.arrays import Arrays, ArrayWriter, map_above

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TextWriter", "Texts", "find_texts", "first_equal", "join_texts", "pack_texts", "take_texts"]

_BLOCK = 4_096  # texts decoded at a time
_PIECE = 1 << 20  # bytes of texts that a writer collects
_OBJECT = 57  # bytes of a string in a list, beside its characters
_LOOKED_UP = 1 << 18  # texts looked up at a time
_SHOWN = 3  # texts in a repr


class Texts(Sequence[str]):
    """Texts that are decoded when they are asked for: UTF-8 in one array of bytes, and where each begins.

    A sequence like a list that nobody changes. A slice, :meth:`take` and ``+`` copy no text: they give the same bytes
    with other row numbers, of 8 bytes each. Lone surrogates are kept. A pickle holds where mapped texts lie, not them.

    >>> texts = Texts.of(["red", "", "grün", "blue"])
    >>> texts[2], texts[-1], texts[1:3] == ["", "grün"], list(texts.take(np.array([3, 0])))
    ('grün', 'blue', True, ['blue', 'red'])
    >>> texts[:1] + ["black"]
    Texts(['red', 'black'])
    """

    __slots__ = ("_ends", "_packs", "_rows")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, packs: Sequence[Arrays], rows: range | NDArray[np.int64] | None = None) -> None:
        """Take packs of "bytes" and "starts" [n + 1]; ``rows`` counts their texts through, None means all of them."""
        self._packs = tuple(packs)
        self._ends: list[int] = np.cumsum([len(pack["starts"]) - 1 for pack in packs]).tolist()
        self._rows = range(self._ends[-1] if packs else 0) if rows is None else rows

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Pack texts, in memory if they are small, else in the cache."""
        writer = ArrayWriter({"bytes": np.uint8, "starts": np.int64})
        position = 0
        writer.append("starts", [position])
        source = iter(texts)
        while block := list(islice(source, _BLOCK)):
            position = _append(writer, block, position)
        return cls([writer.finish()])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Texts: ...
    def __getitem__(self, row: int | slice) -> str | Texts:
        if isinstance(row, slice):
            return Texts(self._packs, self._rows[row])
        return self._text(int(self._rows[row]))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            rows = np.asarray(self._rows[start : start + _BLOCK])
            first, last = int(rows.min()), int(rows.max())
            if last - first < 4 * len(rows):  # read what lies between them as well
                run = list(self._run(range(first, last + 1)))
                yield from (run[place] for place in (rows - first).tolist())
            else:
                yield from map(self._text, rows.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Texts | list):
            return NotImplemented
        return len(self) == len(other) and (
            self._is_same(other) or all(a == b for a, b in zip(self, other, strict=True))
        )

    def __add__(self, other: Sequence[str]) -> Texts:
        return join_packed([self, other])

    def __radd__(self, other: Sequence[str]) -> Texts:
        return join_packed([other, self])

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:_SHOWN]))
        return f"Texts([{shown}])" if len(self) <= _SHOWN else f"Texts([{shown}, ...], {len(self):,} texts)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Texts, (self._packs, self._rows)

    def take(self, rows: NDArray[np.integer[Any]] | Sequence[int]) -> Texts:
        """Return the texts ``rows``, in that order; negative rows count from the end."""
        wanted = np.asarray(rows, dtype=np.int64)
        odd = wanted[(wanted < -len(self)) | (wanted >= len(self))]
        if len(odd):
            raise IndexError(f"text {odd[0]} of {len(self):,}")
        wanted = np.where(wanted < 0, wanted + len(self), wanted)
        known = self._rows
        if isinstance(known, range):
            return Texts(self._packs, known.start + known.step * wanted)
        return Texts(self._packs, known[wanted])

    def pack(self) -> Arrays:
        """Return "bytes" and "starts" [n + 1] of these texts and no others."""
        if len(self._packs) == 1 and isinstance(self._rows, range) and self._rows == range(self._ends[0]):
            return self._packs[0]
        return Texts.of(self)._packs[0]

    def _is_same(self, other: Texts | list[str]) -> bool:
        """Return whether the other texts are the same bytes, so that nobody need compare them."""
        if isinstance(other, list) or self._packs != other._packs:
            return False
        return np.array_equal(np.asarray(self._rows), np.asarray(other._rows))

    def _pack(self, row: int) -> tuple[Arrays, int]:
        """Return the pack of a row, and how many rows there are before it."""
        place = bisect_right(self._ends, row)
        return self._packs[place], self._ends[place - 1] if place else 0

    def _text(self, row: int) -> str:
        pack, before = self._pack(row)
        start, stop = pack["starts"][row - before : row - before + 2].tolist()
        return str(pack["bytes"][start:stop].data, "utf-8", "surrogatepass")

    def _run(self, rows: range) -> Iterator[str]:
        """Yield the texts of neighbouring rows, all of which are read at once."""
        while rows:
            pack, before = self._pack(rows.start)
            here = range(rows.start, min(rows.stop, before + len(pack["starts"]) - 1))
            starts = pack["starts"][here.start - before : here.stop - before + 1]
            content = pack["bytes"][starts[0] : starts[-1]].tobytes()
            places = (starts - starts[0]).tolist()
            if content.isascii():  # then bytes are characters
                whole = content.decode("ascii")
                yield from (whole[a:b] for a, b in pairwise(places))
            else:
                yield from (content[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(places))
            rows = rows[len(here) :]


class TextWriter:
    """Takes texts one by one: a list of them while they are small, then :class:`Texts` in the cache.

    >>> writer = TextWriter()
    >>> writer.append("red")
    >>> len(writer), writer.finish()
    (1, ['red'])
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0  # bytes that they take
        self._written = self._position = 0  # texts and bytes
        self._limit = map_above()
        self._packed: ArrayWriter | None = None

    def __len__(self) -> int:
        return self._written + len(self._texts)

    def append(self, text: str) -> None:
        """Add a text."""
        self._texts.append(text)
        self._size += len(text) + _OBJECT
        if self._size > (self._limit if self._packed is None else _PIECE):
            self._pack()

    def finish(self) -> Sequence[str]:
        """Return all texts; nothing can be added afterwards."""
        if self._packed is None:
            return self._texts
        self._pack()
        return Texts([self._packed.finish()])

    def _pack(self) -> None:
        if self._packed is None:
            self._packed = ArrayWriter({"bytes": np.uint8, "starts": np.int64}, limit=0)
            self._packed.append("starts", [0])
        self._position = _append(self._packed, self._texts, self._position)
        self._written += len(self._texts)
        self._texts, self._size = [], 0


def _append(writer: ArrayWriter, texts: Sequence[str], position: int) -> int:
    """Write texts behind the byte ``position``; return where the last one ends."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    writer.append("bytes", np.frombuffer(b"".join(encoded), dtype=np.uint8))
    ends = position + np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
    writer.append("starts", ends)
    return int(ends[-1]) if len(ends) else position


def pack_texts(texts: Iterable[str]) -> Sequence[str]:
    """Return the texts as a list while they are small, else as :class:`Texts` in the cache."""
    writer = TextWriter()
    for text in texts:
        writer.append(text)
    return writer.finish()


def take_texts(texts: Sequence[str], rows: NDArray[np.integer[Any]]) -> Sequence[str]:
    """Return the texts ``rows``, in that order: as :class:`Texts` if they are, else as a list."""
    return texts.take(rows) if isinstance(texts, Texts) else [texts[row] for row in rows.tolist()]


def join_texts(*parts: Sequence[str]) -> Sequence[str]:
    """Return all texts, one part after the other: as :class:`Texts` if a part is, else as a list."""
    if any(isinstance(part, Texts) for part in parts):
        return join_packed(parts)
    return [text for part in parts for text in part]


def join_packed(parts: Sequence[Sequence[str]]) -> Texts:
    """Return all texts, one part after the other; those that are not packed are packed."""
    packs: list[Arrays] = []
    rows: list[NDArray[np.int64]] = []
    for part in parts:
        packed = part if isinstance(part, Texts) else Texts.of(part)
        firsts = np.empty(len(packed._packs), dtype=np.int64)  # of each of its packs, where it lies in the new ones
        for place, pack in enumerate(packed._packs):
            if pack not in packs:
                packs.append(pack)
            number = packs.index(pack)
            firsts[place] = sum(len(other["starts"]) - 1 for other in packs[:number])
        own = np.asarray(packed._rows, dtype=np.int64)
        place_of = np.searchsorted(packed._ends, own, side="right")
        rows.append(own - np.concatenate([[0], packed._ends])[place_of] + firsts[place_of])
    return Texts(packs, np.concatenate(rows))


# ------------------------------------------------------------------ which texts are equal


def find_texts(wanted: Sequence[str], texts: Sequence[str]) -> NDArray[np.int64]:
    """Return for each wanted text its place in ``texts``, the last of several, or -1; memory holds numbers only.

    >>> find_texts(["b", "x", "a"], ["a", "b", "a"]).tolist()
    [1, -1, 2]
    """
    hashes = _hashes(texts)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    places = np.full(len(wanted), -1, dtype=np.int64)
    for first in range(0, len(wanted), _LOOKED_UP):
        keys = _hashes(wanted[first : first + _LOOKED_UP])
        starts, stops = (np.searchsorted(hashes, keys, side=side) for side in ("left", "right"))
        for key in np.flatnonzero(starts < stops).tolist():
            text = wanted[first + key]
            same = (place for place in order[starts[key] : stops[key]][::-1].tolist() if texts[place] == text)
            places[first + key] = next(same, -1)
    return places


def first_equal(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return for each text the place of the first one equal to it; memory holds numbers only.

    >>> first_equal(["a", "b", "a", "a"]).tolist()
    [0, 1, 0, 0]
    """
    hashes = _hashes(texts)
    firsts = np.arange(len(hashes))
    ordered = np.sort(hashes)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    if not len(twice):
        return firsts
    rows = np.flatnonzero(twice[np.minimum(np.searchsorted(twice, hashes), len(twice) - 1)] == hashes)
    _, first, group = np.unique(hashes[rows], return_index=True, return_inverse=True)
    firsts[rows] = rows[first[group]]
    seen: dict[str, int] = {}  # texts whose hash is that of another one
    for row in rows[firsts[rows] != rows].tolist():
        text = texts[row]
        if text != texts[int(firsts[row])]:
            firsts[row] = seen.setdefault(text, row)
    return firsts


def _hashes(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return a hash of each text, the same within this process."""
    return np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))
