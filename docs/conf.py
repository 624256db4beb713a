"""Settings of Sphinx. ``docs/build_site.py`` prepares the pages and starts it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from _pages import SOURCE, source_page  # noqa: E402
from _reference import source_of  # noqa: E402

from megalabel import __version__  # noqa: E402

project = "megalabel"
author = "The megalabel authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.linkcode"]

myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, SOURCE: SOURCE + "/{{path}}.html"}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"megalabel {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the page of the source of an object of the API."""
    place = source_of(info["module"], info["fullname"])
    return place and f"{SOURCE}/{place[0]}.html#line-{place[1]}"


def add_sources(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Add a page for every file and folder of the repository that a page or the API links to."""
    for path in sorted(app.config.source_paths):
        yield f"{SOURCE}/{path}", source_page(path), "page.html"


def setup(app: Sphinx) -> None:
    """Register what is ours."""
    app.add_config_value("source_paths", [], "html")
    app.connect("html-collect-pages", add_sources)
