"""Find a label by its uid, text or id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from megalabel.errors import SettingError

if TYPE_CHECKING:
    from megalabel.data.dataset import Labels

__all__ = ["find_label", "shorten"]

_ID = re.compile("[0-9]{1,18}")
_LISTED = 3  # labels listed in a message


def find_label(name: str, labels: Labels, removed: Iterable[int] = (), *, whole: bool = False) -> int:
    """Return the id of the label whose uid, text or id is ``name``.

    Tries, in this order: uid, text, id, text ignoring case, part of a text ignoring case; with ``whole``, only uid and
    whole texts. The first rule that matches one label wins; a rule that matches several is an error that lists some.
    Removed labels are found by their uid alone.

    >>> from megalabel.data.dataset import Labels
    >>> labels = Labels(["Red shoe", "red hat", "blue hat"], ["a", "b", "c"])
    >>> [find_label(name, labels) for name in ("b", "Red shoe", "2", "RED HAT", "shoe")]
    [1, 0, 2, 1, 0]
    """
    folded = name.casefold().strip()
    if not folded:
        raise SettingError("the label is empty", remedy="give its text, uid or id")
    gone = frozenset(removed)
    rules: tuple[Callable[[], list[int]], ...] = (
        lambda: [i for i, uid in enumerate(labels.uids) if uid == name],
        lambda: [i for i, text in enumerate(labels.texts) if text == name and i not in gone],
        lambda: [int(name)] if _ID.fullmatch(name) and int(name) < len(labels) else [],
        lambda: [i for i, text in enumerate(labels.texts) if text.casefold().strip() == folded and i not in gone],
        lambda: [i for i, text in enumerate(labels.texts) if folded in text.casefold() and i not in gone],
    )
    for rule in (rules[0], rules[1], rules[3]) if whole else rules:
        ids = rule()
        if len(ids) == 1:
            return ids[0]
        if ids:
            listed = ", ".join(f"{labels.uids[i] if whole else i} {shorten(labels.texts[i])!r}" for i in ids[:_LISTED])
            more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
            what = f"{shorten(name)!r} matches {len(ids)} labels: {listed}{more}"
            raise SettingError(what, remedy=f"give the {'uid' if whole else 'id'} of one")
    names = [text for i, text in enumerate(labels.texts) if i not in gone]
    if whole:
        names = [*dict.fromkeys([*names, *(uid for i, uid in enumerate(labels.uids) if i not in gone)])]
    kinds = "uid or text" if whole else "uid, text or id"
    raise SettingError(f"no label has the {kinds} {shorten(name)!r}", remedy=_nearest(folded, names))


def _nearest(name: str, texts: Sequence[str]) -> str:
    """Return the remedy for an unknown name: the labels that share the most character trigrams with it."""
    padded = f" {name} "
    trigrams = {padded[i : i + 3] for i in range(len(padded) - 2)}

    def shared(text: str) -> tuple[int, int]:
        folded = f" {text.casefold()} "
        return sum(trigram in folded for trigram in trigrams), -len(text)

    close = [text for text in nlargest(_LISTED, texts, key=shared) if shared(text)[0] >= 0.4 * len(trigrams)]
    if not close:
        return "megalabel labels list RUN --find WORD shows the labels of a model, with their uids"
    return f"did you mean {' or '.join(repr(shorten(text)) for text in close)}?"


def shorten(text: str, width: int = 60) -> str:
    """Return the text on one line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"
