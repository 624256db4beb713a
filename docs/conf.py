"""Settings of Sphinx. ``docs/build_site.py`` prepares the pages and starts it."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from _pages import SOURCE  # noqa: E402
from _reference import source_of  # noqa: E402

from megalabel import __version__  # noqa: E402

project = "megalabel"
author = "The megalabel authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.linkcode", "_math"]
html_math_renderer = "mathml"

myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, SOURCE: SOURCE + "/{{path}}.html"}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
suppress_warnings = ["ref.python"]  # two packages may each have a class of one name
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
