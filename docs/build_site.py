"""Build the site: the pages of docs, the reference from the program, everything in one folder that works offline.

Run: python docs/build_site.py [--out site]
Sphinx reads the pages from ``build/site-pages``. A warning, such as a link that leads nowhere or a page that is in no
list of ``docs/index.md``, fails the build.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from _pages import ROOT, ROOT_PAGES, navigation, site_text, sources
from _reference import api_list, api_pages, commands
from sphinx.cmd.build import main as sphinx

DOCS = ROOT / "docs"
MADE = {"api.md": api_list, "commands.md": commands}  # what takes the place of the mark on these pages
MARK = "<!-- the site has it here -->"


def write_pages(folder: Path) -> set[str]:
    """Write all pages of the site to a folder; return the files of the repository that they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "img", folder / "img")
    pages = {path.name: site_text(path) for path in sorted(DOCS.glob("*.md"))}
    pages |= {name: site_text(ROOT / source) for source, name in ROOT_PAGES.items()}
    linked = sources(list(pages.values()))
    for name, make in MADE.items():
        pages[name] = pages[name].replace(MARK, make())
    pages["index.md"] += "\n" + navigation(pages["index.md"]) + "\n"
    for name, text in {**pages, **api_pages()}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return linked


def build(out: Path, work: Path) -> int:
    """Build the site in ``out``; return 0 if there was no warning."""
    linked = write_pages(work / "site-pages")
    shutil.rmtree(out, ignore_errors=True)
    options = ["-q", "-b", "html", "-c", DOCS, "-d", work / "site-doctrees", "--fail-on-warning", "--fresh-env"]
    setting = f"source_paths={','.join(sorted(linked))}"
    return sphinx([*map(str, options), "-D", setting, str(work / "site-pages"), str(out)])


def main() -> int:
    """Build the site and say where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the site; it is replaced")
    out = parser.parse_args().out
    if code := build(out, ROOT / "build"):
        return code
    print(f"{out / 'index.html'}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
