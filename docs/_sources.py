"""The files of the repository that the site links to, as plain pages of their own."""

from __future__ import annotations

import html
import re
from pathlib import Path

from _pages import ROOT, SOURCE
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

LINK = re.compile(rf'href="{SOURCE}/([^"#]+)\.html[#"]')
SHOWN = (".py", ".yaml", ".json", ".md", ".js", ".css", ".html", ".txt", ".toml", ".sh")
STYLES = """
:root { color-scheme: light dark; }
body { margin: 1.5rem; font-family: system-ui, sans-serif; background: #fff; color: #1f2328; }
h1 { font-size: 1.1rem; } a { color: #0b57d0; } pre { overflow: auto; line-height: 1.4; } .linenos { opacity: .75; }
"""
DARK = "body { background: #131416; color: #e3e3e3; } a { color: #8ab4f8; }"


def write_sources(site: Path) -> int:
    """Write a page for every file and folder that the pages of a site link to, and return how many there are."""
    linked = {path for page in site.glob("*.html") for path in LINK.findall(page.read_text(encoding="utf-8"))}
    for folder in [ROOT / path for path in linked if (ROOT / path).is_dir()]:
        linked |= {path.relative_to(ROOT).as_posix() for path in shown(folder)}
    style = HtmlFormatter(style="a11y-high-contrast-light").get_style_defs("pre")
    dark = HtmlFormatter(style="a11y-high-contrast-dark").get_style_defs("pre")
    folder = site / SOURCE
    for path in sorted(linked):
        page = folder / f"{path}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(source_page(path), encoding="utf-8")
    text = f"{STYLES}{style}\n@media (prefers-color-scheme: dark) {{ {DARK}\n{dark} }}\n"
    (folder / "style.css").write_text(text, encoding="utf-8")
    return len(linked)


def shown(folder: Path) -> list[Path]:
    """Return the files of a folder that are text."""
    return sorted(path for path in folder.iterdir() if path.suffix in SHOWN)


def source_page(path: str) -> str:
    """Return the page of a file, with a line number as the anchor of each line, or the list of files of a folder."""
    file, name = ROOT / path, html.escape(path)
    up = "../" * (path.count("/") + 1)
    if file.is_dir():
        links = (
            f'<li><a href="{file.name}/{each.name}.html">{html.escape(each.name)}</a></li>' for each in shown(file)
        )
        body = f"<ul>{''.join(links)}</ul>"
    else:
        # tabindex: wide lines scroll, which must work by keyboard too
        code = highlight(
            file.read_text(encoding="utf-8"), _lexer(file.name), HtmlFormatter(linenos="inline", lineanchors="line")
        )
        body = code.replace("<pre>", f'<pre tabindex="0" aria-label="{name}">', 1)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name} - megalabel</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="{up[3:]}style.css"></head><body><main><h1>{name}</h1>'
        f'<p><a href="{up}index.html">megalabel, documentation</a></p>{body}</main></body></html>\n'
    )


def _lexer(name: str) -> object:
    try:
        return get_lexer_for_filename(name)
    except ClassNotFound:
        return TextLexer()
