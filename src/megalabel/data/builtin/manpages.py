"""manpages: the manual pages of this machine or of a folder of extracted packages, and the pages under their SEE ALSO.

Text of a point or label: name and description of the page, as in its NAME section, such as
``cmp: compare two files byte by byte``. Points and labels share uids, ``cmp(1)``.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.builtin._items import Items, keep_labels
from megalabel.data.builtin._roff import Page, Reference, decode_page, read_page
from megalabel.data.builtin.settings import Setting
from megalabel.data.cache import cached
from megalabel.errors import DataError
from megalabel.progress import track

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["SETTINGS", "build"]

VERSION = 1  # of this builder; a new number invalidates cached sets
TEST_SHARE = 0.17
MACHINE = Path("/")
MANUALS = ("usr/share/man", "usr/local/share/man", "usr/local/man", "opt/homebrew/share/man")  # below MACHINE
REMEDY = "install packages with their manual pages, or give manpages:path=FOLDER with extracted packages"
PERL = ("3pm", "3perl")  # sections of perl modules

UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".bz2": bz2.decompress,
    "": lambda content: content,
}
_FOLDER = re.compile(r"man[0-9nl]\w*$")
_FILE = re.compile(r"(.+)\.([0-9nl][A-Za-z0-9_+-]*)(\.gz|\.xz|\.bz2|)$")
_PACKAGE = re.compile(r"([a-z0-9][a-z0-9+.-]*)_([^_]+)(_[a-z0-9-]+)?$")

SETTINGS = {
    "path": Setting("path", None, "a folder of extracted packages, NAME_VERSION/usr/share/man; this machine's pages"),
    "seed": Setting("whole", 0, "which pages are test points"),
}


def build(values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
    """Return the set, from the cache if the same pages of the same packages were read before."""
    files = _machine() if values["path"] is None else _folder(values["path"])
    content = hashlib.sha256()
    for file in track(files, "looking for manual pages", total=len(files), unit="pages"):
        content.update(repr((file.package, file.version, file.name, file.section, file.link)).encode())
        content.update(hashlib.sha256(file.content()).digest())
    key = {"set": "manpages", "builder": VERSION, "seed": values["seed"], "content": content.hexdigest()}
    return cached(key, lambda: _make(files, values["path"] or MACHINE, values["seed"], say), say=say)


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a manual: its page, or a link to another file of that kind."""

    path: Path
    name: str
    section: str
    package: str  # "" if it is not known
    version: str
    link: tuple[str, str] | None  # name and section of the file it links to

    def content(self) -> bytes:
        """Return the bytes of the file as they are; none of a link, or of a file that cannot be read."""
        try:
            return b"" if self.link else self.path.read_bytes()
        except OSError:
            return b""

    def page(self) -> Page | None:
        """Return the page, or None if the file is damaged."""
        try:
            return read_page(
                decode_page(UNPACK[self.path.suffix if self.path.suffix in UNPACK else ""](self.content()))
            )
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
            return None


def _machine() -> list[_File]:
    """Return the manual pages of this machine; the packages they come from are known where dpkg installed them."""
    owners: dict[str, str] = {}
    versions: dict[str, str] = {}
    dpkg = MACHINE / "var/lib/dpkg"
    if (dpkg / "status").is_file():
        stanzas = (dpkg / "status").read_text("utf-8", "replace").split("\n\n")
        fields = (dict(re.findall(r"^(Package|Version): *(.*)$", stanza, re.M)) for stanza in stanzas)
        versions = {field["Package"]: field["Version"] for field in fields if len(field) == 2}
        for listed in sorted((dpkg / "info").glob("*.list")):
            package = listed.stem.partition(":")[0]
            owners.update(
                (line, package) for line in listed.read_text("utf-8", "replace").split("\n") if "/man/" in line
            )
    files = []
    for manual in MANUALS:
        for path in _paths(MACHINE / manual, top=MACHINE / manual):
            package = owners.get(f"/{path.relative_to(MACHINE).as_posix()}", "")
            files.extend(_file(path, package, versions.get(package, ""), MACHINE))
    if not files:
        raise DataError("there are no manual pages on this machine", remedy=REMEDY)
    return sorted(files, key=_order)


def _folder(folder: Path) -> list[_File]:
    """Return the manual pages below a folder; its sub-folders named NAME_VERSION are packages."""
    if not folder.is_dir():
        raise DataError("no such folder", path=folder, remedy=REMEDY)
    files = []
    for path in _paths(folder, top=folder):
        first = path.relative_to(folder).parts[0].replace("%3a", ":")
        package = _PACKAGE.match(first)
        files.extend(_file(path, package[1] if package else "", package[2] if package else ""))
    if not files:
        raise DataError("there are no manual pages in this folder", path=folder, remedy=REMEDY)
    return sorted(files, key=_order)


def _order(file: _File) -> tuple[str, str, str, str]:
    return file.package, file.name, file.section, file.path.as_posix()


def _paths(folder: Path, *, top: Path) -> Iterator[Path]:
    """Yield the files of ``man/man1`` and so on below the folder, not those of translations (``man/de/man1``)."""
    for place, _, names in os.walk(folder):
        here = Path(place)
        if _FOLDER.match(here.name) and (here.parent == top or here.parent.name == "man"):
            yield from (here / name for name in names)


def _file(path: Path, package: str, version: str, root: Path | None = None) -> list[_File]:
    """Return the file if its name is that of a manual page; links through /etc/alternatives are followed below root."""
    hit = _FILE.match(path.name)
    if hit is None:
        return []
    link: tuple[str, str] | None = None
    if path.is_symlink():
        target = path.readlink()
        if root is not None and target.is_relative_to("/etc/alternatives"):
            chosen = root / target.relative_to("/")
            target = chosen.readlink() if chosen.is_symlink() else target
        aim = _FILE.match(target.name)
        link = (aim[1], aim[2]) if aim else ("", "")
    return [_File(path, hit[1], hit[2], package, version, link)]


def _make(files: list[_File], source: Path, seed: int, say: Callable[[str], None]) -> Dataset:
    pages = _Pages()
    damaged = 0
    for file in track(files, "reading manual pages", total=len(files), unit="pages"):
        page = Page() if file.link else file.page()
        damaged += page is None
        pages.add(file, page or Page())
    pages.link()
    pairs = pages.pairs()
    if not pairs:
        raise DataError("no manual page here names another under SEE ALSO", path=source, remedy=REMEDY)
    sources = {file.package: file.version for file in files if file.package}
    say(
        f"manpages: {len(pages.entries):,} pages with {len(pairs):,} SEE ALSO pairs, in {len(files):,} files of "
        f"{len(sources):,} packages" + (f"; damaged files left out: {damaged:,}" if damaged else "")
    )
    uids = [f"{entry.name}({entry.section})" for entry in pages.entries]
    return keep_labels(
        Items(_texts(pages.entries), uids, np.array(pairs, dtype=np.int64)),
        name="manpages",
        about="manual pages and the pages under their SEE ALSO",
        licence="manual pages of the packages read, under the licences of the packages",
        share=TEST_SHARE,
        seed=seed,
    ).replace(sources=sources)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One page, under all its names."""

    name: str  # of its file
    section: str
    package: str
    shown: str  # its name as the page writes it
    description: str
    see_also: dict[Reference, None]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a name leads."""

    section: str
    package: str
    entry: int


class _Pages:
    """All pages that describe themselves, and the names that lead to them.

    Two files are one page if one links to the other, if their NAME sections are equal, or if
    their names and descriptions are and their sections begin alike (``ls.1``, ``ls.1plan9``). Of
    two packages with different pages of one name and section, the first counts.
    """

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.places: dict[str, list[_Place]] = {}
        self.same: dict[tuple[str, ...], int] = {}
        self.links: list[tuple[_File, tuple[str, str]]] = []
        self.aliases: list[tuple[str, _Place]] = []  # further names in NAME sections

    def add(self, file: _File, page: Page) -> None:
        """Add a file in the order of packages."""
        if file.link or page.source:
            aim = _FILE.match(Path(page.source).name)
            self.links.append((file, file.link or ((aim[1], aim[2]) if aim else ("", ""))))
            return
        if not page.description:
            return
        shown = next((name for name in page.names if name.lower() == file.name.lower()), page.names[0])
        said = (file.section[0], page.description, *page.names)
        text = (file.section[0], page.description, "", shown)
        number = self.same.get(said, self.same.get(text))
        if number is None:
            if any(place.section == file.section for place in self.places.get(file.name, ())):
                return
            number = len(self.entries)
            self.entries.append(_Entry(file.name, file.section, file.package, shown, page.description, {}))
        self.same.setdefault(said, number)
        self.same.setdefault(text, number)
        self.entries[number].see_also.update(dict.fromkeys(page.see_also))
        place = _Place(file.section, file.package, number)
        self.places.setdefault(file.name, []).append(place)
        self.aliases.extend((name, place) for name in page.names)

    def link(self) -> None:
        """Add the names of links, then those in NAME sections, where no file of that name is known."""
        waiting = self.links
        while waiting:
            left = []
            for file, (name, section) in waiting:
                number = self.find(Reference(name, section), file.package) if name else None
                if number is None:
                    left.append((file, (name, section)))
                else:
                    self.places.setdefault(file.name, []).append(_Place(file.section, file.package, number))
            if len(left) == len(waiting):
                break
            waiting = left
        for name, place in self.aliases:
            if not any(known.section == place.section for known in self.places.get(name, ())):
                self.places.setdefault(name, []).append(place)

    def pairs(self) -> list[tuple[int, int]]:
        """Return (page, page under its SEE ALSO), of pages that are known."""
        found = ((i, self.seen(see, entry)) for i, entry in enumerate(self.entries) for see in entry.see_also)
        return [(i, j) for i, j in found if j is not None and i != j]

    def seen(self, see: Reference, entry: _Entry) -> int | None:
        """Return the page that a page means by a reference, or None.

        Without a section, it means a page of its own package, a perl module, or, from a perl
        module, any page of perl.
        """
        if see.section:
            return self.find(see, entry.package)
        places = self.places.get(see.name, [])
        own = [place for place in places if place.package == entry.package]
        if not own and ("::" in see.name or entry.section in PERL):
            own = [place for place in places if place.section in PERL or see.name.startswith("perl")]
        return own[0].entry if len({place.entry for place in own}) == 1 else None

    def find(self, see: Reference, package: str) -> int | None:
        """Return the page of that name and section: the package before others, its section before one like it."""
        places = self.places.get(see.name) or self.places.get(see.name.lower(), [])
        own = [place for place in places if place.package == package]
        for group in (own, places):
            exact = (place.entry for place in group if place.section == see.section)
            alike = (place.entry for place in group if place.section[0] == see.section[0])
            number = next(exact, next(alike, None))
            if number is not None:
                return number
        return own[0].entry if len({place.entry for place in own}) == 1 else None


def _texts(entries: Iterable[_Entry]) -> list[str]:
    """Return ``name: description`` of each page, with the section if two pages would look the same."""
    entries = list(entries)
    texts = [f"{entry.shown}: {entry.description}" for entry in entries]
    counts = Counter(texts)
    return [
        text if counts[text] == 1 else f"{entry.shown}({entry.section}): {entry.description}"
        for text, entry in zip(texts, entries, strict=True)
    ]
