"""Data sets built from what is installed on this machine, or from a seed.

Each set is one module with the same two names: ``SETTINGS`` (what a user may set) and
``build(values, say)``. Nothing is downloaded. The same machine, packages and settings
give the same set, in every process.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from megalabel.data.builtin.settings import Setting, parse_settings
from megalabel.errors import DataError, MegalabelError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from megalabel.data.dataset import Dataset

__all__ = ["BUILTIN", "Builder", "build", "get_builder", "unknown_name"]

BUILTIN = {
    "pydocs": "docstrings of installed scientific Python packages -> the objects under their See Also",
    "manpages": "manual page (name and description) -> the pages under its SEE ALSO",
    "wordnet": "WordNet synset (lemmas: gloss) -> the synsets it points to",
    "debian": "Debian package (name and synopsis) -> the packages it depends on, recommends or suggests",
    "hpo": "rare disease (name) -> its phenotypes in the Human Phenotype Ontology",
    "genes": "human gene (symbol and name) -> the Gene Ontology terms it is annotated with",
    "synthetic": "seeded made-up texts of any size with a known answer",
}


class Builder(Protocol):
    """A module that makes one built-in set."""

    SETTINGS: dict[str, Setting]

    def build(self, values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
        """Return the set for checked settings; ``say`` receives messages about what was read or left out."""
        ...


def get_builder(name: str) -> Builder:
    """Return the module of a built-in set by its name."""
    if name not in BUILTIN:
        raise unknown_name(name)
    module: Builder = import_module(f"megalabel.data.builtin.{name}")
    return module


def build(spec: str, *, say: Callable[[str], None] | None = None) -> Dataset:
    """Return the built-in set behind ``name`` or ``name:key=value,key=value``.

    ``say`` receives messages about what was read, left out or not cached.

    >>> data = build("synthetic:points=300,labels=40,seed=3")
    >>> len(data.train), len(data.test), len(data.labels)
    (240, 60, 40)
    """
    name, _, text = spec.partition(":")
    builder = get_builder(name)
    return builder.build(parse_settings(name, text, builder.SETTINGS), say or (lambda text: None))


def unknown_name(text: str) -> MegalabelError:
    """Return the error for a source that is neither a built-in set nor a path that exists.

    >>> print(unknown_name("pydoc"))
    'pydoc' is neither a built-in set nor a path that exists; did you mean 'pydocs'?
    """
    if Path(text).suffix:
        return DataError("no such file or folder", path=text)
    what = f"{text!r} is neither a built-in set nor a path that exists"
    return DataError(what, remedy=nearest(text.partition(":")[0], BUILTIN))
