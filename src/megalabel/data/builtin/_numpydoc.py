"""Read two things from a docstring in the numpydoc style: its summary and the names under See Also."""

from __future__ import annotations

import re

__all__ = ["see_also", "summary"]

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
            return ""  # a section: what follows is no summary
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
    open_list = False  # the last line ended in a comma, so that the next goes on
    for line in _section(doc, "see also"):
        if line[:1].isspace() and not open_list:
            continue
        listed = re.split(r"\s:|:\s|:$", _ROLE.sub(r"\1", line).strip(), maxsplit=1)[0]
        open_list = listed == _ROLE.sub(r"\1", line).strip() and listed.endswith(",")
        names.extend(name for part in listed.split(",") if (name := _name(part)))
    return list(dict.fromkeys(names))


def _section(doc: str, title: str) -> list[str]:
    """Return the lines of a section with the indentation of its heading taken off; none if it is not there."""
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
    bare = _CODE.sub(lambda found: found[1] or found[2], text.strip()).strip().strip("*").removesuffix("()")
    bare = bare.lstrip("~.").rstrip(".;")
    return bare if _NAME.match(bare) else ""


def _plain(text: str) -> str:
    text = _ROLE.sub(lambda found: found[1], text)
    text = _CODE.sub(lambda found: found[1] or found[2].lstrip("~."), text)
    return _NOTE.sub("", _STRESS.sub(r"\2", text))


def _cut(text: str) -> str:
    if len(text) <= LONGEST_SUMMARY:
        return text
    return text[: LONGEST_SUMMARY - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"
