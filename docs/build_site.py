"""Build the site: the pages of docs, the reference from the program, everything in one folder that works offline.

Run: python docs/build_site.py [--out site]
Sphinx reads the pages from ``build/site-pages``, where they are written first. A warning, such as a link that leads
nowhere or a page that is in no list of ``docs/index.md``, fails the build.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from _access import mend_pages
from _pages import ROOT, ROOT_PAGES, navigation, site_text
from _reference import api_list, api_pages, commands
from _sources import write_sources
from sphinx.cmd.build import main as sphinx

DOCS = ROOT / "docs"
MADE = {"api.md": api_list, "commands.md": commands}  # what takes the place of the mark on these pages
MARK = "<!-- the site has it here -->"


def write_pages(folder: Path) -> None:
    """Write the Markdown of all pages of the site to a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "img", folder / "img")
    pages = {path.name: site_text(path) for path in sorted(DOCS.glob("*.md"))}
    pages |= {name: site_text(ROOT / source) for source, name in ROOT_PAGES.items()}
    for name, make in MADE.items():
        pages[name] = pages[name].replace(MARK, make())
    pages["index.md"] += "\n" + navigation(pages["index.md"]) + "\n"
    for name, text in {**pages, **api_pages()}.items():
        (folder / name).write_text(text, encoding="utf-8")


def build(out: Path, work: Path) -> int:
    """Build the site in ``out``; return 0 if there was no warning."""
    write_pages(work / "site-pages")
    shutil.rmtree(out, ignore_errors=True)
    options = ["-q", "-b", "html", "-c", DOCS, "-d", work / "site-doctrees", "--fail-on-warning", "--fresh-env"]
    if code := sphinx([*map(str, options), str(work / "site-pages"), str(out)]):
        return code
    mend_pages(out)
    write_sources(out)
    return 0


def main() -> int:
    """Build the site and say where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the site; it is replaced")
    parser.add_argument("--work", type=Path, default=ROOT / "build", help="folder for what is made on the way")
    arguments = parser.parse_args()
    if code := build(arguments.out, arguments.work):
        return code
    print(f"{arguments.out / 'index.html'}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
