"""Read the NAME and SEE ALSO sections of a manual page written in roff, with the man or the mdoc macros."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Page", "Reference", "decode_page", "read_page"]

LONGEST_DESCRIPTION = 300  # characters

_CODING = re.compile(rb"-\*-.*?coding:\s*([\w-]+)")
_COMMENT = re.compile(r"[.'][ \t]*\\?[\"#]|[.']\s*$")
_HEADING = re.compile(r"[.'][ \t]*(SH|Sh|SS|Ss)\b[ \t]*(.*)")
_FONTS = re.compile(r"\\f(?:\(..|\[\w*\]|.)|\\s[-+]?\d|\\&|[\"\\:.,]")  # in a heading
_DEFINED = re.compile(r"\.[ \t]*ds[ \t]+(\S+)[ \t]+\"?([^\\\n]*)$", re.M)
_REQUEST = re.compile(r"[.'][ \t]*([^\s\\]*)[ \t]*(.*)")
_SOURCE = re.compile(r"[.']so[ \t]+(\S+)")
_DASH = re.compile(r"(?:^|\s)(?:-{1,3}|[–—])\s|\s(?:-{1,3}|[–—])$")  # noqa: RUF001
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|[^\s\\])+)')
_LISTED = re.compile(r"([A-Za-z_0-9.+:@\[][\w.+:@\[-]*)\s?\((\d[A-Za-z]*|[nl])\)")
_MODULE = re.compile(r"(?<![\w:'$@%&])([A-Za-z]\w*(?:::\w+)+)(?![\w:])")
_BARE = re.compile(r"[A-Za-z_][\w.+-]*$")
_SEE = re.compile(r"^(?:see also|see|and|or|also)\b[:\s]*", re.I)

# Strings that the macro packages and pod2man define; others are read from the page.
_STRINGS = {
    **{"Aq": "'", "--": "--", "PI": "pi", 'L"': '"', 'R"': '"', "C`": "", "C'": "", "C+": "C++", "S": "", "R": "®"},
    **{"Tm": "™", "lq": '"', "rq": '"', "Lq": '"', "Rq": '"', "Ba": "|", "Lt": "<", "Gt": ">", "Am": "&", "q": '"'},
    **{"-": "-", "'": "", "`": "", "^": "", ",": "", "~": "~", "/": "", ":": "", "T<": "", "T>": "", "SW": ""},
}
_CHARACTERS = {
    **{"em": "—", "en": "-", "hy": "-", "mi": "-", "pl": "+", "aq": "'", "dq": '"', "lq": '"', "rq": '"', "oq": "'"},
    **{"cq": "'", "bu": "•", "co": "©", "rg": "®", "tm": "™", "rs": "\\", "bs": "\\", "ti": "~", "ha": "^", "ga": "`"},
    **{"sl": "/", "ba": "|", "or": "|", "at": "@", "sh": "#", "Do": "$", "lB": "[", "rB": "]", "lC": "{", "rC": "}"},
    **{"la": "<", "ra": ">", "->": "->", "<-": "<-", "<=": "<=", ">=": ">=", "!=": "!=", "mu": "x", "de": "°"},
    **{"ss": "ß", "AE": "Æ", "ae": "æ", "OE": "Œ", "oe": "œ", "/o": "ø", "/O": "Ø", "oa": "å", "oA": "Å", "Fo": "«"},
    **{"Fc": "»", "*a": "α", "*b": "β", "*m": "µ", "*p": "π", "*W": "", "fm": "'", "ul": "_", "ru": "_"},  # noqa: RUF001
}
_ACCENTS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", ":": "\u0308", "~": "\u0303", ",": "\u0327", "v": "\u030c"}

_QUOTES = {"u2018": "oq", "u2019": "cq", "u201C": "lq", "u201D": "rq"}
_LETTERS = {"e": "\\", " ": " ", "~": " ", "0": " ", "t": " "} | dict.fromkeys("&|^/,%:acdupr{}!?)", "")
_ESCAPE = re.compile(
    r"""\\(?: ["#].*                                            # a comment, up to the end of the line
        | \((?P<character2>..) | \[(?P<character>[^\]]*)\]
        | \*(?: \((?P<string2>..) | \[(?P<string>[^\]\s]*)[^\]]*\] | (?P<string1>.) )
        | [fFgkmMnYV][-+]?(?: \(.. | \[[^\]]*\] | . )       # fonts, colours, number registers
        | s(?: [-+]?(?: \(\d\d | \[[^\]]*\] | '[^']*' ) | [-+]\d | [123]\d | \d )   # sizes
        | [bDhHlLNoRSvwxXZA](?P<mark>.).*?(?P=mark) | z.      # moves, lines, widths
        | (?P<letter>.) | $ )""",
    re.VERBOSE,
)

_PLAIN = {"B", "I", "R", "SM", "SB", "CW", "C", "Nm", "Pa", "Em", "Sy", "Ic", "Cm", "Li", "Ar", "Va", "Dv", "Ev", "Ql"}
_PLAIN |= {"Sq", "Dq", "Qq", "Fa", "Ft", "Vt", "Tn", "At", "Bx", "Fx", "Nx", "Ox", "Ux", "No", "St", "Fn", "Er", "Lb"}
_JOINED = {first + second for first in "BIRS" for second in "BIR" if first != second} | {"SB"}
_BREAKS = {"PP", "P", "LP", "TP", "TQ", "HP", "IP", "SS", "RS", "RE", "Sp", "br", "sp", "nf", "fi"}
_BREAKS |= {"Pp", "Ss", "It", "Bl", "El"}
_CALLED = {"Xr", "Nm", "Ns", "Ap", "Pq", "No"}
_STOPS = set(",.;:)!?") | {"(", "|"}


@dataclass(frozen=True, slots=True)
class Reference:
    """A page that SEE ALSO names; ``section`` is empty where none was written."""

    name: str
    section: str


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says of itself.

    ``source`` is the file that the page is a link to (``.so man3/printf.3``); then the rest is empty.
    """

    names: tuple[str, ...] = ()
    description: str = ""
    see_also: tuple[Reference, ...] = ()
    source: str = ""


def decode_page(content: bytes) -> str:
    r"""Return the text of a page: in the encoding it declares, else UTF-8, else Latin-1.

    >>> decode_page(b"caf\xe9"), decode_page("café".encode())
    ('café', 'café')
    """
    declared = _CODING.search(content[:300])
    for encoding in ([declared[1].decode()] if declared else []) + ["utf-8"]:
        try:
            return content.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return content.decode("latin-1")


def read_page(text: str) -> Page:
    r"""Return the names, the description and the references of a page.

    A reference is ``name(section)``, a perl module (``Some::Module``), or a name that stands
    alone between commas or line ends; the last kind has no section, and only the reader who
    knows all pages can tell whether it is one.

    >>> page = read_page('''.TH CMP 1
    ... .SH NAME
    ... cmp, same \\- compare two files
    ... .SH "SEE ALSO"
    ... .BR diff (1),
    ... \\fBText::Diff\\fR,
    ... .B comm
    ... ''')
    >>> page.names, page.description
    (('cmp', 'same'), 'compare two files')
    >>> [(see.name, see.section) for see in page.see_also]
    [('diff', '1'), ('Text::Diff', ''), ('comm', '')]
    """
    lines = [line for line in text.splitlines() if not _COMMENT.match(line)]
    written = [line for line in lines if line.strip()]
    if len(written) in (1, 2) and (link := _SOURCE.match(written[0])):
        return Page(source=link[1])
    strings = {name: value for name, value in _DEFINED.findall(text)} | _STRINGS
    sections = _sections(lines)
    plain = _Plain(strings)
    names, description = _name_section(plain.lines(sections.get("name", [])))
    return Page(names, description, _references(plain.lines(sections.get("see also", []))))


def _sections(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines of NAME and SEE ALSO, which may be sub-sections; one that occurs twice has the lines of both."""
    found: dict[str, list[str]] = {}
    body: list[str] | None = None
    level = opened = ""  # of the last heading, and of the section we are in
    waiting = False  # for the title on the line below the heading
    for line in lines:
        heading = _HEADING.match(line)
        if heading is None and not (waiting and line.strip()):
            if body is not None:
                body.append(line)
            continue
        level, title = (heading[1].upper(), heading[2]) if heading is not None else (level, line)
        waiting = heading is not None and not title.strip()
        if waiting:
            continue
        words = " ".join(_FONTS.sub("", title).split()).lower()
        kind = "see also" if words.startswith("see also") else words
        if kind in ("name", "see also"):
            body, opened = found.setdefault(kind, []), level
        elif level == "SH" or opened == "SS":
            body = None
        elif body is not None:
            body.append(line)
    return found


class _Plain:
    """Turns the lines of a section into plain ones: requests carried out, escapes replaced; "" ends a paragraph."""

    def __init__(self, strings: dict[str, str]) -> None:
        self.strings = strings

    def lines(self, lines: list[str]) -> list[str]:
        """Return plain lines."""
        plain: list[str] = []
        joined = re.sub(r"\\\n", "", "\n".join(lines)).split("\n")
        for line in self.carried_out(iter(joined)):
            request = _REQUEST.match(line)
            if request is None:
                plain.append(self.unescape(line).strip())
            else:
                plain.extend(self.request(request[1], request[2]))
        return plain

    def carried_out(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield the lines that a terminal would show: without definitions, and of conditions the branch for it."""
        shown = False
        for line in lines:
            request = _REQUEST.match(line)
            name = request[1] if request else ""
            if request and name in ("de", "am", "ig", "de1", "dei"):
                _skip(lines, f".{(request[2].split() or ['.'])[-1] if name == 'ig' else '.'}")
            elif request and name in ("if", "ie", "el"):
                shown, rest = (not shown, request[2]) if name == "el" else _condition(request[2])
                block = rest.startswith("\\{")
                rest = rest[2:].strip().removesuffix("\\") if block else rest
                depth = 1 + rest.count("\\{") - rest.count("\\}") if block else 0
                inner = [rest] if rest else []
                while depth > 0 and (more := next(lines, None)) is not None:
                    depth += more.count("\\{") - more.count("\\}")
                    inner.append(more)
                if shown:
                    yield from self.carried_out(iter(part for part in inner if part.strip(".\\} '")))
            else:
                yield line

    def request(self, name: str, rest: str) -> list[str]:
        """Return the plain lines of one request."""
        rest = re.sub(r'(?<!\\)\\".*', "", rest)
        if name in _BREAKS:
            return ["", self.title(name, rest)]
        if name == "Nd":
            return ["- " + " ".join(self.arguments(rest))]
        if name in ("Xr", "MR") or (name in _PLAIN and name[1:2].islower()):
            return [" ".join(self.mdoc(f"{'Xr' if name == 'MR' else name} {rest}"))]
        if name in _JOINED:
            return ["".join(self.arguments(rest))]
        if name in _PLAIN:
            return [" ".join(self.arguments(rest))]
        return []

    def title(self, name: str, rest: str) -> str:
        """Return what stands on the line of a request that begins a paragraph."""
        if name in ("SS", "Ss"):
            return " ".join(self.arguments(rest))
        if name == "IP":
            return "".join(self.arguments(rest)[:1])
        return " ".join(self.mdoc(rest)) if name == "It" else ""

    def arguments(self, text: str) -> list[str]:
        """Return the plain arguments of a request, where quotes hold spaces and a doubled quote is a quote."""
        found = _ARGUMENT.finditer(text)
        return [self.unescape(hit[1].replace('""', '"') if hit[1] is not None else hit[2] or "") for hit in found]

    def mdoc(self, text: str) -> list[str]:
        """Return the words of an mdoc line: macros within it called, punctuation set without a space."""
        words: list[str] = []
        arguments = self.arguments(text)
        while arguments:
            word = arguments.pop(0)
            if word == "Xr" and len(arguments) > 1 and re.fullmatch(r"\d\w*", arguments[1]):
                words.append(f"{arguments.pop(0)}({arguments.pop(0)})")
            elif word in _CALLED or (word in _PLAIN and not words):
                continue
            elif word in _STOPS and words:
                words[-1] += word
            else:
                words.append(word)
        return words

    def unescape(self, text: str) -> str:
        """Return the text without roff's escapes."""
        if "\\" not in text:
            return text
        return unicodedata.normalize("NFC", _ESCAPE.sub(self._printed, text))

    def _printed(self, escape: re.Match[str]) -> str:
        """Return what one escape prints."""
        parts = escape.groupdict()
        character = parts["character2"] or parts["character"]
        string = parts["string1"] or parts["string2"] or parts["string"]
        if character is not None:
            return _character(character)
        if string is not None:
            return self.strings.get(string, "")
        return _LETTERS.get(parts["letter"] or "", parts["letter"] or "")


def _character(name: str) -> str:
    """Return the special character of that name: ``em``, ``u2019``, ``'e``; an unknown one prints nothing."""
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if re.fullmatch(r"u[0-9A-F]{4,6}", name):
        return _CHARACTERS.get(_QUOTES.get(name, ""), chr(min(int(name[1:], 16), 0x10FFFF)))
    if len(name) == 2 and name[0] in _ACCENTS:
        return name[1] + _ACCENTS[name[0]]
    return ""


def _skip(lines: Iterator[str], end: str) -> None:
    """Read on behind the line that ends a definition."""
    for line in lines:
        if line.split()[:1] == [end] or line.startswith(".."):
            return


def _condition(text: str) -> tuple[bool, str]:
    """Return whether groff on a terminal passes the condition, and what stands behind it; registers count as unset."""
    hit = re.match(r"(!?)(\S+)[ \t]*(.*)", text)
    if hit is None:
        return False, ""
    return (hit[2] in ("n", "\\n(.g", "\\n[.g]")) != bool(hit[1]), hit[3]


def _name_section(lines: list[str]) -> tuple[tuple[str, ...], str]:
    """Return the names before each dash (``cmp, same - compare``), and the description behind the first."""
    names: dict[str, None] = {}
    description = waiting = ""  # waiting: names on lines of their own above the dash
    for paragraph in re.split(r"\n{2,}", "\n".join(lines)):
        text = " ".join(f"{waiting} {paragraph}".split())
        dash = _DASH.search(text)
        if dash is None:
            waiting = "" if description else text
            continue
        before, after, waiting = text[: dash.start()], text[dash.end() :].strip(), ""
        if description and not re.fullmatch(r"\S+(?:, ?\S+)*", before):
            break
        if any(mark.isalpha() for mark in after):
            listed = (re.sub(r"\(\w*\)$", "", part.strip("\"'|;")) for part in re.split(r"[,\s]+", before))
            names.update(dict.fromkeys(name for name in listed if name))
            description = description or _cut(after)
    return (tuple(names), description) if names else ((), "")


def _references(lines: list[str]) -> tuple[Reference, ...]:
    """Return the pages named in the lines, in order, each once."""
    found: dict[Reference, None] = {}
    for piece in re.split(r"[,;\n]|\.\s|\s(?:and|or)\s", "\n".join(lines)):
        listed = [Reference(name.rstrip(":"), section) for name, section in _LISTED.findall(piece)]
        modules = [Reference(name, "") for name in _MODULE.findall(_LISTED.sub(" ", piece))]
        alone = _SEE.sub("", piece.strip(' \t•*-"')).strip(" .\"'")
        bare = [Reference(alone, "")] if not listed and not modules and _BARE.match(alone) else []
        found.update(dict.fromkeys([*listed, *modules, *bare]))
    return tuple(found)


def _cut(text: str) -> str:
    if len(text) <= LONGEST_DESCRIPTION:
        return text
    return text[: LONGEST_DESCRIPTION - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"
