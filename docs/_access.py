"""What the pages of the theme lack for keyboards and screen readers."""

from __future__ import annotations

from pathlib import Path

MENDS = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer', '<aside aria-label="All pages" class="sidebar-drawer'),
    ('<aside class="toc-drawer', '<aside aria-label="This page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),  # wide lines and tables scroll, which must work by keyboard too
    ('<div id="search-results">', '<h1 class="only-read">Search</h1><div id="search-results">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)


def mend_pages(site: Path) -> None:
    """Mend all pages of a site in place."""
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        for old, new in MENDS:
            text = text.replace(old, new)
        page.write_text(text, encoding="utf-8")
