"""One label by what a user calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from megalabel.errors import SettingError

if TYPE_CHECKING:
    from megalabel.data.dataset import Labels

__all__ = ["find_label", "shorten"]

_FEW = 3  # labels named in a message


def find_label(name: str, labels: Labels) -> int:
    """Return the number of the label whose uid, text or number is ``name``.

    Tried in this order: uid, text, number, text in any case, part of a text in any case.
    The first way that finds one label wins; one that finds several stops with the first few.

    >>> from megalabel.data.dataset import Labels
    >>> labels = Labels(["Red shoe", "red hat", "blue hat"], ["a", "b", "c"])
    >>> [find_label(name, labels) for name in ("b", "Red shoe", "2", "RED HAT", "shoe")]
    [1, 0, 2, 1, 0]
    """
    small = name.casefold().strip()
    if not small:
        raise SettingError("the label is empty", remedy="give its text, uid or number")
    ways: tuple[Callable[[], list[int]], ...] = (
        lambda: [i for i, uid in enumerate(labels.uids) if uid == name],
        lambda: [i for i, text in enumerate(labels.texts) if text == name],
        lambda: [int(name)] if name.isascii() and name.isdigit() and int(name) < len(labels) else [],
        lambda: [i for i, text in enumerate(labels.texts) if text.casefold().strip() == small],
        lambda: [i for i, text in enumerate(labels.texts) if small in text.casefold()],
    )
    for way in ways:
        found = way()
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(f"{i} {shorten(labels.texts[i])!r}" for i in found[:_FEW])
            more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
            what = f"{name!r} could be one of {len(found)} labels: {some}{more}"
            raise SettingError(what, remedy="give the number of one")
    raise SettingError(f"no label has the uid, text or number {name!r}", remedy=_nearest(small, labels.texts))


def _nearest(name: str, texts: Sequence[str]) -> str:
    """Return the remedy for an unknown name: the labels that share the most triples of letters with it."""
    padded = f" {name} "
    triples = {padded[i : i + 3] for i in range(len(padded) - 2)}

    def shared(text: str) -> tuple[int, int]:
        small = f" {text.casefold()} "
        return sum(triple in small for triple in triples), -len(text)

    close = [text for text in nlargest(_FEW, texts, key=shared) if shared(text)[0] >= 0.4 * len(triples)]
    if not close:
        return "give part of its text, its uid or its number"
    return f"did you mean {' or '.join(repr(shorten(text)) for text in close)}?"


def shorten(text: str, width: int = 60) -> str:
    """Return the text on one line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"
