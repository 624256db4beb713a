"""Shared by the readers of label files: languages, texts and the hierarchy of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from megalabel.data.concepts import Concept, find_cycle, root_path
from megalabel.data.dataset import Labels
from megalabel.errors import DataError, SettingError, nearest

__all__ = ["Language", "Term", "TextParts", "count_lines", "make_labels"]

_PARTS = ("label", "alt", "path")


@dataclass(frozen=True, slots=True)
class Term:
    """One label as a file has it, before the ids of all labels are known."""

    uid: str
    name: str
    line: int | None = None
    alts: Sequence[str] = ()
    notation: str | None = None
    parents: Sequence[str] = ()  # uids
    text: str | None = None  # the whole text, instead of one made of the parts


class TextParts(NamedTuple):
    """What the text of a label consists of beside its name.

    >>> TextParts.parse("label+path")
    TextParts(alt=False, path=True)
    """

    alt: bool
    path: bool

    @classmethod
    def parse(cls, value: str | None) -> TextParts:
        """Return the parts that ``--label-text`` names; by default the name and other names."""
        names = ["label", "alt"] if value is None else value.split("+")
        odd = next((name for name in names if name not in _PARTS), None)
        if odd is not None:
            raise SettingError(f"--label-text has no part {odd!r}", remedy=nearest(odd, _PARTS))
        if "label" not in names or len(set(names)) < len(names):
            what = f"--label-text is {value!r}"
            raise SettingError(what, remedy="give label, and alt or path if wanted: label+alt+path")
        return cls("alt" in names, "path" in names)

    def text(self, name: str, alts: Iterable[str], path: Sequence[str]) -> str:
        """Return the text of a label; ``path`` holds the names of the labels above it, from the root down.

        >>> TextParts(alt=True, path=True).text("cats", ["felines"], ["animals", "mammals"])
        'cats; felines (animals > mammals)'
        """
        others = [alt for alt in dict.fromkeys(alts) if alt and alt != name] if self.alt else []
        return "; ".join([name, *others]) + (f" ({' > '.join(path)})" if self.path and path else "")


class Language(NamedTuple):
    """The language to take labels in, and how the one or other file says it.

    >>> Language("en").rank("en"), Language("en").rank("en-GB"), Language("en").rank(""), Language("en").rank("fi")
    (0, 1, 2, 3)
    """

    code: str

    def rank(self, tag: str) -> int:
        """Return how well a language tag fits, 0 best; the empty tag is a label without a language."""
        tag, code = tag.lower(), self.code.lower()
        return 0 if tag == code else 1 if tag.startswith(f"{code}-") else 2 if not tag else 3

    @classmethod
    def choose(cls, given: str | None, counts: Mapping[str, int], path: Path) -> Language:
        """Return the language given, or the only one there is; ``counts`` has the labels of each tag."""
        tags = sorted((tag for tag in counts if tag), key=lambda tag: (-counts[tag], tag))
        shown = ", ".join(f"{tag} ({counts[tag]:,})" for tag in tags[:8]) + (", ..." if len(tags) > 8 else "")
        if given is None:
            if len(tags) > 1:
                raise DataError(
                    f"labels in {len(tags)} languages: {shown}", path=path,
                    remedy="say which with --language (language= in Python)",
                )  # fmt: skip
            return cls(tags[0] if tags else "")
        language = cls(given)
        if tags and min(map(language.rank, tags)) > 1:
            raise DataError(f"no label is in the language {given!r:.40}", path=path, remedy=f"there is: {shown}")
        return language


def make_labels(
    terms: Sequence[Term], parts: TextParts, path: Path | str, cut: Callable[[str], None] | None = None
) -> Labels:
    """Return the labels of a file; a duplicate uid, an unknown parent and a cycle are errors that name it.

    With ``cut``, a link that closes a cycle is left out, and ``cut`` receives a line about it.
    """
    ids: dict[str, int] = {}
    for label, term in enumerate(terms):
        if term.uid in ids:
            first = terms[ids[term.uid]].line
            where = "" if first is None else f", first on line {first}"
            raise DataError(f"duplicate label uid {term.uid!r:.80}{where}", path=path, line=term.line)
        ids[term.uid] = label
    if not terms:
        raise DataError("this file holds no labels", path=path)
    parents = [[_parent(uid, term, ids, path) for uid in dict.fromkeys(term.parents)] for term in terms]
    _open_cycles(parents, terms, path, cut)
    texts, concepts = [], {}
    for label, term in enumerate(terms):
        above = [terms[place].name for place in root_path(label, parents)] if parts.path else []
        text = parts.text(term.name, term.alts, above) if term.text is None else term.text
        texts.append(text)
        concept = Concept(None if term.name == text else term.name, term.notation, tuple(parents[label]))
        if concept != Concept():
            concepts[label] = concept
    return Labels(texts, [term.uid for term in terms], concepts)


def count_lines(say: Callable[[str], None], path: Path | str, counts: Mapping[str, int]) -> None:
    """Say each count that is not 0; a key is the line with ``{}`` for the number, and ``{s}`` for a plural."""
    for line, count in counts.items():
        if count:
            say(f"{path}: {line.format(f'{count:,}', s='' if count == 1 else 's')}")


def _parent(uid: str, term: Term, ids: Mapping[str, int], path: Path | str) -> int:
    if uid not in ids:
        what = f"{uid!r:.80}, the parent of {term.uid!r:.80}, is no label of this file"
        raise DataError(what, path=path, line=term.line, remedy="add it, or correct the parent")
    return ids[uid]


def _open_cycles(
    parents: list[list[int]], terms: Sequence[Term], path: Path | str, cut: Callable[[str], None] | None
) -> None:
    links, first = 0, ""
    while (cycle := find_cycle(parents)) is not None:
        shown = [terms[label].uid for label in cycle]
        if len(shown) > 6:
            shown = [*shown[:3], "...", *shown[-2:]]
        way = " < ".join(f"{uid:.80}" for uid in shown)
        if cut is None:
            what = f"the parents of labels run in a circle: {way}"
            raise DataError(what, path=path, line=terms[cycle[0]].line, remedy="remove one of these links")
        parents[cycle[-2]].remove(cycle[-1])
        links, first = links + 1, first or way
    if cut is not None and links:
        cut(f"{path}: {links:,} link{'s' * (links > 1)} to broader labels left out that close a circle: {first}")
