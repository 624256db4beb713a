"""Shared by the tables: parse a cell of the labels column and look up its labels."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from megalabel.data.dataset import Labels
from megalabel.data.formats._rows import show_weight
from megalabel.data.formats._separator import GUESSED, choose_separator, split_items
from megalabel.documents import parse_number

__all__ = [
    "Cell",
    "Splitter",
    "is_missing",
    "joiner",
    "name_labels",
    "parent_uids",
    "parse_cell",
    "parse_weights",
    "resolve",
]

Token = str | int
Cell = str | tuple[Token, ...]  # a text still to be split, or a list of labels

SEPARATORS = (*GUESSED, " ", "\x1f", "\x1e")


class Splitter(NamedTuple):
    """How to split a cell into labels; no separator means one label per cell.

    ``strip`` drops spaces around labels, empty ones, and the quotes of a quoted one.

    >>> Splitter(";", strip=True).tokens("red; green;")
    ['red', 'green']
    """

    separator: str | None
    strip: bool

    def tokens(self, cell: Cell) -> Sequence[Token]:
        """Return the labels of a cell."""
        if not isinstance(cell, str):
            return cell
        if not cell:
            return ()
        if self.strip:
            return split_items(cell, self.separator)
        return [cell] if self.separator is None else cell.split(self.separator)


def parse_cell(value: Any) -> Cell:
    """Return a cell: nothing, a text, or a list of labels, given as a list or written as one.

    >>> parse_cell('["red", "green"]'), parse_cell("red|green"), parse_cell(None), parse_cell(7)
    (('red', 'green'), 'red|green', '', (7,))
    """
    if is_missing(value):
        return ""
    if isinstance(value, str):
        items = _listed(value)
        return value if items is None or _odd(items) else tuple(items)
    items = _as_list(value)
    labels = [_plain(label) for label in ([value] if items is None else items)]
    if _odd(labels):
        raise ValueError(f"label {_odd(labels)[0]!r:.60} is neither a text nor a whole number")
    return tuple(labels)


def parse_weights(value: Any, splitter: Splitter) -> list[Any]:
    """Return the weights of a cell as numbers; anything else is returned unchanged, for the caller to refuse."""
    if is_missing(value) or value == "":
        return []
    if not isinstance(value, str):
        items = _as_list(value)
        return [value] if items is None else items
    items = _listed(value)
    return [_number(part) for part in splitter.tokens(value)] if items is None else items


def resolve(
    cells: Iterable[Cell], labels: Labels, separator: str | None
) -> tuple[Splitter, Callable[[str], int | None]]:
    """Return how to split the cells and how to look up a label: by uid, else by text, else by number.

    If no separator is given, it is the one for which every label is known. Numbers are
    positions in the label set only if none of them is a known uid or text. If no splitter
    fits, the one with the most known labels is returned and the caller reports the unknown label.
    """
    distinct = set(cells)
    splitters = [Splitter(s, strip) for strip in (False, True) for s in _choices(separator)]
    tables = [{uid: i for i, uid in enumerate(labels.uids)}, _unique(labels.names)]
    for table in tables:
        for splitter in splitters:
            if all(str(token) in table for cell in distinct for token in splitter.tokens(cell)):
                return splitter, table.get
    best, most = splitters[0], 0
    chosen: Callable[[str], int | None] = tables[0].get
    for table in tables:
        for splitter in splitters:
            known = sum(str(token) in table for cell in distinct for token in splitter.tokens(cell))
            if known > most:
                best, most, chosen = splitter, known, table.get
    if most == 0:
        for splitter in splitters:
            if all(_is_whole(token) for cell in distinct for token in splitter.tokens(cell)):
                return splitter, int
    return best, chosen


def name_labels(
    cells: Iterable[Cell], separator: str | None, known: Collection[str] = (), skip: Collection[str] = ()
) -> tuple[Splitter, Labels]:
    """Return how to split the cells, and their labels, sorted by name (numbers by value).

    Names known from elsewhere help to tell what separates the labels of a cell. Names in ``skip``, in small letters,
    are no labels.

    If no separator is given and the cells leave open which it is, an AmbiguousError is raised.
    """
    distinct = set(cells)
    splitter = _guess(distinct, separator, known)
    tokens = {token for cell in distinct for token in splitter.tokens(cell) if str(token).casefold() not in skip}
    whole = [token for token in tokens if isinstance(token, int)]
    names = [str(i) for i in sorted(whole)] if len(whole) == len(tokens) else sorted({str(token) for token in tokens})
    return splitter, Labels(names, names)


def _guess(cells: Collection[Cell], separator: str | None, known: Collection[str]) -> Splitter:
    """Return how to split cells of unknown labels: by the separator given, or by the evidence of all cells."""
    if separator is not None:
        return Splitter(_choices(separator)[0], strip=True)
    if known:
        choices = [Splitter(mark, strip=True) for mark in (None, *GUESSED)]
        fit = [s for s in choices if all(str(token) in known for cell in cells for token in s.tokens(cell))]
        if fit:
            return fit[0]
    listed = {str(token) for cell in cells if not isinstance(cell, str) for token in cell}
    texts = (cell for cell in cells if isinstance(cell, str))
    return Splitter(choose_separator(texts, listed | set(known)), strip=True)


def parent_uids(cells: Sequence[Cell], labels: Labels) -> list[list[str]]:
    """Return the uids that each cell of a parent column names, by uid or text; an unknown name stays as it is.

    >>> parent_uids(["", "a", "a|Bee"], Labels(["Ant", "Bee", "Cat"], ["a", "b", "c"]))
    [[], ['a'], ['a', 'b']]
    """
    splitter, _ = resolve(cells, labels, None)
    named = dict(zip(reversed(labels.texts), reversed(labels.uids), strict=True))  # the first label of a text
    named |= {uid: uid for uid in labels.uids}
    return [[named.get(str(token), str(token)) for token in splitter.tokens(cell)] for cell in cells]


def joiner(uids: Sequence[str]) -> tuple[Callable[[list[str]], str], Callable[[list[float]], str]]:
    """Return how to write labels, and weights, into a cell so that :func:`resolve` reads the same back.

    >>> labels, weights = joiner(["a", "b|c"])
    >>> labels(["a", "b|c"]), weights([1.0, 0.5])
    ('a;b|c', '1.0;0.5')
    """
    plain = all(uid and not uid.startswith("[") for uid in uids)
    free = next((s for s in SEPARATORS if plain and not any(s in uid for uid in uids)), None)
    if free is None:
        return lambda labels: orjson.dumps(labels).decode(), lambda weights: orjson.dumps(weights).decode()
    return free.join, lambda weights: free.join(show_weight(weight) for weight in weights)


def is_missing(value: Any) -> bool:
    """Return whether a cell is missing: None, NaN or pandas.NA."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in {"NAType", "NaTType"}
    )


def _choices(separator: str | None) -> tuple[str | None, ...]:
    if separator is None:
        return (None, *SEPARATORS)
    return (separator.replace("\\t", "\t") or None,)


def _unique(texts: Sequence[str]) -> dict[str, int]:
    """Map each text to its place; a duplicate text is left out."""
    places: dict[str, int] = {}
    duplicates = set()
    for i, text in enumerate(texts):
        if text in places:
            duplicates.add(text)
        places[text] = i
    return {text: i for text, i in places.items() if text not in duplicates}


def _listed(text: str) -> list[Any] | None:
    """Return the list that a text spells in JSON or Python, or None."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            document = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return document if isinstance(document, list) else None


def _as_list(value: Any) -> list[Any] | None:
    if isinstance(value, list | tuple):
        return list(value)
    if hasattr(value, "tolist"):  # numpy
        value = value.tolist()
    elif hasattr(value, "to_list"):  # polars
        value = value.to_list()
    return value if isinstance(value, list) else None


def _plain(label: Any) -> Any:
    """Turn a numpy number into a Python number."""
    return label.item() if type(label).__module__ == "numpy" and hasattr(label, "item") else label


def _odd(labels: list[Any]) -> list[Any]:
    """Return the labels that are neither texts nor whole numbers."""
    return [label for label in labels if not isinstance(label, str) and type(label) is not int]


def _number(part: Token) -> Any:
    try:
        return part if isinstance(part, int) else parse_number(part)
    except ValueError:
        return part


def _is_whole(token: Token) -> bool:
    if isinstance(token, int):
        return True
    return len(token) < 20 and token.isascii() and token.removeprefix("-").isdigit()
