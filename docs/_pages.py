"""The pages of the site, made from the Markdown of the repository; which itself reads well on any Git host.

- Links to other pages stay; links to files and folders of the repository lead to pages that show them.
- The navigation is the lists of ``docs/index.md``: a page that is in none fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
SOURCE = "source"  # the folder of pages that show files, and the scheme of links to them
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^- \[[^\]]+\]\(([\w-]+\.md)\)", re.MULTILINE)


def site_link(path: str, folder: Path) -> str:
    """Return the target on the site of a link to ``path`` in a page of ``folder``."""
    target = (folder / path).resolve()
    inside = target.relative_to(ROOT).as_posix()
    if inside in ROOT_PAGES:
        return ROOT_PAGES[inside]
    if target.parent == ROOT / "docs" and target.suffix == ".md":
        return target.name
    if target.is_relative_to(ROOT / "docs"):
        return path  # pictures
    return f"{SOURCE}:{inside}"


def site_text(path: Path) -> str:
    """Return the Markdown of a page as the site needs it; lines keep their numbers."""
    text = path.read_text(encoding="utf-8")
    return LINK.sub(lambda link: site_link(link[1], path.parent) + (link[2] or ""), text)


def navigation(text: str) -> str:
    """Return hidden tables of contents, one for each section of ``docs/index.md`` with a list of pages.

    >>> print(navigation(chr(10).join(["# Home", "", "## Start", "", "- [Install](install.md): how", ""])))
    ```{toctree}
    :hidden:
    :caption: Start
    install.md
    ```
    """
    parts = []
    for title, body in SECTION.findall(text):
        if pages := ENTRY.findall(body):
            parts.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", *pages, "```"]))
    return "\n\n".join(parts)
