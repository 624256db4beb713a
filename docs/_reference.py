"""The reference of the site, from the program itself: a page for each package, and one with all commands."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from megalabel.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "megalabel"
PARTS = (
    "data", "metrics", "losses", "index", "model", "recipes", "plan", "report", "augment", "graphs", "encoders",
    "heads", "fusion", "batching", "tuning", "serve", "types", "errors", "testing",
)  # fmt: skip


def source_of(module: str, name: str) -> tuple[str, int] | None:
    """Return file and line where an object of a module is defined; None if it is not defined in a file of ours.

    >>> source_of("megalabel.losses", "BCE")[0]
    'src/megalabel/losses/bce.py'
    """
    value: object = import_module(module)
    try:
        for part in name.split("."):
            value = getattr(value, part)
        value = inspect.unwrap(value) if callable(value) else value
        value = value.fget if isinstance(value, property) else value
        file = Path(inspect.getsourcefile(value) or "")  # type: ignore[arg-type]
        line = inspect.getsourcelines(value)[1]  # type: ignore[arg-type]
    except (AttributeError, TypeError, OSError):
        return None
    return (file.relative_to(ROOT).as_posix(), max(line, 1)) if file.is_relative_to(ROOT) else None


def modules() -> dict[str, list[str]]:
    """Return the public modules by the name of their page: the package itself, its parts, the integrations."""
    pages = {"megalabel": ["megalabel"]}
    for name in PARTS:
        pages[name] = [f"megalabel.{name}"]
    bridges = sorted(path.stem for path in (PACKAGE / "integrations").glob("[a-z]*.py"))
    pages["integrations"] = [f"megalabel.integrations.{name}" for name in bridges]
    return pages


def page_of(part: str) -> str:
    """Return the file name of the page of a part."""
    return f"api-{part}.md"


def api_pages() -> dict[str, str]:
    """Return the text of the page of every public module by file name."""
    return {page_of(part): api_page(part, names) for part, names in modules().items()}


def api_list() -> str:
    """Return the list of these pages, and the table of contents that holds them."""
    lines = [f"- [{_title(part)}]({page_of(part)}): {_first_line(part)}" for part in modules()]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", *(page_of(part) for part in modules()), "```"])


def commands() -> str:
    """Return the help of every command as Markdown."""
    command = [sys.executable, "-m", "typer", "megalabel.cli", "utils", "docs", "--name", "megalabel"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout[done.stdout.index("\n## ") :]  # after the program's own help, whose list shortens each command's


def _title(part: str) -> str:
    return "megalabel" if part == "megalabel" else f"megalabel.{part}"


def _first_line(part: str) -> str:
    text = inspect.getdoc(import_module(_title(part))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def api_page(part: str, names: list[str]) -> str:
    """Return the page of a part: its modules, without the names that are on the page of the package itself."""
    lines = [f"# {_title(part)}", ""]
    for name in names:
        if len(names) > 1:
            lines += [f"## {name}", ""]
        try:
            module = import_module(name)
        except MissingExtraError as error:  # its package cannot be installed beside the others
            lines += [f"{error}. See [integrations](integrations.md).", ""]
            continue
        known = set() if name == "megalabel" else _elsewhere(module)
        lines += ["```{eval-rst}", f".. automodule:: {name}", "   :members:"]
        lines += [f"   :exclude-members: {', '.join(sorted(known))}"] if known else []
        lines += ["```", ""]
        if known:
            listed = ", ".join(f"`{each}`" for each in sorted(known))
            lines += [f"Also here: {listed}; see [megalabel]({page_of('megalabel')}).", ""]
    return "\n".join(lines)


def _elsewhere(module: object) -> set[str]:
    """Return the names of a module that are on the page of the package itself."""
    top = import_module("megalabel")
    names = [name for name in getattr(module, "__all__", ()) if name in top.__all__]
    return {name for name in names if getattr(module, name) is getattr(top, name)}
