"""Read the summary and the See Also names of a numpydoc docstring, and resolve those names to objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["Names", "see_also", "summary"]

LONGEST_SUMMARY = 300  # characters

_RULE = re.compile(r"\s*(-{3,}|={3,})\s*$")
_SIGNATURE = re.compile(r"[\w.]+\(.*\)(\s*->.*)?$")
_ROLE = re.compile(r":[\w:+-]+:`~?\.?(?:[^`<]*<)?~?([^`<>]*)>?`")
_CODE = re.compile(r"``([^`]+)``|`([^`]+)`_{0,2}")
_STRESS = re.compile(r"(?<![\w*])(\*{1,2})(\w[\w ]*)\1(?![\w*])")
_NOTE = re.compile(r"\s*\[\w+\]_")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


def summary(doc: str) -> str:
    r"""Return the first paragraph that is not a signature, on one line, without markup.

    >>> summary("sin(x, /)\n\nSine of ``x``, see\n:func:`numpy.cos`.\n\nParameters\n----------\n")
    'Sine of x, see numpy.cos.'
    """
    for paragraph in re.split(r"\n\s*\n", doc):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if len(lines) > 1 and _RULE.match(lines[1]):
            return ""  # a section heading: there is no summary
        while lines and (_SIGNATURE.match(lines[0]) or lines[0].startswith(("..", ">>>"))):
            lines = lines[1:]
        text = " ".join(" ".join(lines).split())
        if text and not _SIGNATURE.match(text) and any(c.isalpha() for c in text):
            return _cut(_plain(text))
    return ""


def see_also(doc: str) -> list[str]:
    """Return the names under See Also, in order, as written and without markup.

    >>> see_also('''Sort.
    ...
    ... See Also
    ... --------
    ... argsort, ndarray.sort : Indirect sort; in place.
    ... :func:`numpy.lexsort`
    ...     Sort by several keys.
    ...
    ... Notes
    ... -----
    ... None.''')
    ['argsort', 'ndarray.sort', 'numpy.lexsort']
    """
    names: list[str] = []
    open_list = False  # the last line ended in a comma, so the list continues
    for line in _section(doc, "see also"):
        if line[:1].isspace() and not open_list:
            continue
        listed = re.split(r"\s:|:\s|:$", _ROLE.sub(r"\1", line).strip(), maxsplit=1)[0]
        open_list = listed == _ROLE.sub(r"\1", line).strip() and listed.endswith(",")
        names.extend(name for part in listed.split(",") if (name := _name(part)))
    return list(dict.fromkeys(names))


def _section(doc: str, title: str) -> list[str]:
    """Return the lines of a section without the indentation of its heading; none if there is no such section."""
    lines = doc.expandtabs().splitlines()
    heads = [i for i in range(len(lines) - 1) if lines[i].strip() and _RULE.match(lines[i + 1])]
    for place, start in enumerate(heads):
        if lines[start].strip().rstrip(":").lower() == title:
            end = heads[place + 1] if place + 1 < len(heads) else len(lines)
            indent = len(lines[start]) - len(lines[start].lstrip())
            body = [line[indent:] if not line[:indent].strip() else line for line in lines[start + 2 : end]]
            return [line.rstrip() for line in body if line.strip()]
    return []


def _name(text: str) -> str:
    bare = _CODE.sub(lambda match: match[1] or match[2], text.strip()).strip().strip("*").removesuffix("()")
    bare = bare.lstrip("~.").rstrip(".;")
    return bare if _NAME.match(bare) else ""


def _plain(text: str) -> str:
    text = _ROLE.sub(lambda match: match[1], text)
    text = _CODE.sub(lambda match: match[1] or match[2].lstrip("~."), text)
    return _NOTE.sub("", _STRESS.sub(r"\2", text))


def _cut(text: str) -> str:
    if len(text) <= LONGEST_SUMMARY:
        return text
    return text[: LONGEST_SUMMARY - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


SHORT = {"np": "numpy", "sp": "scipy", "pd": "pandas", "nx": "networkx", "plt": "matplotlib.pyplot", "xr": "xarray"}
LONGEST_SUFFIX = 3  # parts of a dotted name by which an object is known from anywhere in its package


class Names:
    """The dotted names of every object, and how a docstring refers to them.

    Object i is reached by ``paths[i]``, each ``module:name`` or ``module:Class.name``, the
    best name first.

    >>> names = Names([["numpy:sort"], ["numpy:ndarray.sort"], ["numpy.linalg:norm"]])
    >>> names.find("sort", 1), names.find("linalg.norm", 0), names.find("np.sort", 2), names.find("scope", 0)
    (0, 2, 0, None)
    """

    def __init__(self, paths: Sequence[Sequence[str]]) -> None:
        self.paths = paths
        self.places: dict[str, int] = {}
        self.endings: dict[tuple[str, str], set[int]] = {}
        for i, known in enumerate(paths):
            for path in known:
                parts = path.replace(":", ".").split(".")
                self.places.setdefault(".".join(parts), i)
                for size in range(1, min(LONGEST_SUFFIX, len(parts) - 1) + 1):
                    self.endings.setdefault((parts[0], ".".join(parts[-size:])), set()).add(i)

    def find(self, name: str, origin: int) -> int | None:
        """Return the object that ``name`` means in the docstring of object ``origin``, or None.

        First the class and the modules around the origin, from the inside out; then the
        name as written; then the only object of the package whose name ends with it. The
        origin itself is never returned.
        """
        first, dot, rest = name.partition(".")
        whole = f"{SHORT[first]}.{rest}" if dot and first in SHORT else name
        for scope in self._scopes(origin):
            item = self.places.get(f"{scope}.{name}")
            if item is not None and item != origin:
                return item
        item = self.places.get(whole)
        if item is not None and item != origin:
            return item
        package = self.paths[origin][0].partition(":")[0].partition(".")[0]
        only = self.endings.get((package, name), set()) - {origin}
        return next(iter(only)) if len(only) == 1 else None

    def _scopes(self, origin: int) -> Iterator[str]:
        for path in self.paths[origin]:
            module, _, qualified = path.partition(":")
            scope = ".".join([module, *qualified.split(".")[:-1]])
            while scope:
                yield scope
                scope = scope.rpartition(".")[0]
