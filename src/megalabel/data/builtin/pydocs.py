"""pydocs: docstrings of installed scientific Python packages, and the objects under their See Also.

Text of a point or label: package, name and summary of an object, such as
``numpy argsort: Returns the indices that would sort an array.`` Points and labels share
uids, the dotted name of the object.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from platform import python_version
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from megalabel.data.builtin._items import Items, keep_labels
from megalabel.data.builtin._numpydoc import Names, see_also, summary
from megalabel.data.builtin.settings import Setting
from megalabel.data.cache import cached
from megalabel.errors import DataError, MissingExtraError, SettingError, nearest
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["SETTINGS", "build"]

VERSION = 1  # of this builder; a new number invalidates cached sets
TEST_SHARE = 0.17

# Import name -> distribution, for the packages known to follow numpydoc.
PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "pandas": "pandas",
    "networkx": "networkx",
    "matplotlib": "matplotlib",
    "statsmodels": "statsmodels",
    "skimage": "scikit-image",
    "xarray": "xarray",
}

SETTINGS = {
    "packages": Setting("names", (), f"packages to read, joined by +; all that are installed of {', '.join(PACKAGES)}"),
    "seed": Setting("whole", 0, "which objects are test points"),
}


def build(values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
    """Return the set, from the cache if these versions of these packages were read before."""
    packages = _installed(values["packages"])
    versions = {package: _version(package) for package in packages}
    key = {"set": "pydocs", "builder": VERSION, "python": python_version(), "seed": values["seed"], "of": versions}
    broken: list[str] = []
    return cached(
        key,
        lambda: _make(packages, values["seed"], broken, say),
        keep=lambda: not broken and None not in versions.values(),
        say=say,
    )


def _installed(requested: tuple[str, ...]) -> list[str]:
    if not requested:
        packages = [package for package in PACKAGES if _there(package)]
        if not packages:
            raise MissingExtraError(" or ".join(PACKAGES.values()), extra="demo", what="the built-in set pydocs")
        return packages
    for package in requested:
        if not _there(package):
            if package in PACKAGES:
                raise MissingExtraError(PACKAGES[package], extra="demo", what=f"pydocs:packages={package}")
            raise SettingError(f"pydocs: there is no package {package!r}", remedy=nearest(package, PACKAGES))
    return sorted(
        requested, key=lambda package: (list(PACKAGES).index(package) if package in PACKAGES else 99, package)
    )


def _there(package: str) -> bool:
    with suppress(ImportError, ValueError):
        return find_spec(package) is not None
    return False


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(PACKAGES.get(package, package))
    return None


def _make(packages: list[str], seed: int, broken: list[str], say: Callable[[str], None]) -> Dataset:
    """Walk the packages and make the set; those that cannot be read are appended to ``broken``."""
    rows: list[dict[str, Any]] = []
    with progress("reading docstrings", unit="modules") as step, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for package, docs in zip(packages, pool.map(lambda name: _walk(name, step), packages), strict=True):
            rows.extend(docs)
            if not docs:
                broken.append(package)
                say(f"pydocs: {package} is skipped, it could not be read")
    entries = _distinct(rows)
    names = Names([entry.paths for entry in entries])
    links = ((i, names.find(name, i)) for i, entry in enumerate(entries) for name in entry.see_also)
    pairs = [(i, j) for i, j in links if j is not None]
    if not pairs:
        raise DataError(f"no See Also section in {', '.join(packages)}", remedy="choose packages that follow numpydoc")
    say(f"pydocs: {len(rows):,} docstrings with {len(pairs):,} See Also pairs from {', '.join(packages)}")
    return keep_labels(
        Items(_texts(entries), [entry.name for entry in entries], np.array(pairs, dtype=np.int64)),
        name="pydocs",
        about=f"objects of {', '.join(packages)} and the objects under their See Also",
        licence="documentation of the packages read, under their own licences (BSD style)",
        share=TEST_SHARE,
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One object: the paths to it (``module:name`` or ``module:Class.name``), best first, its summary and See Also."""

    paths: list[str]
    summary: str
    see_also: tuple[str, ...]

    @property
    def name(self) -> str:
        """The dotted name."""
        return self.paths[0].replace(":", ".")

    @property
    def short(self) -> tuple[str, str]:
        """Package, and name or Class.name."""
        module, _, name = self.paths[0].partition(":")
        return module.partition(".")[0], name


def _distinct(rows: list[dict[str, Any]]) -> list[_Entry]:
    """Return the objects that have a summary, ordered by name.

    Objects of one package with the same last name, summary and See Also (a function and
    the method it wraps) are one object.
    """
    same: dict[tuple[str, tuple[str, ...], str], dict[str, bool]] = {}
    for number, row in enumerate(rows):
        names = tuple(see_also(row["doc"]))
        parts = re.split("[:.]", min(row["paths"])[0])
        kin = f"{parts[0]} {parts[-1]}" if names else str(number)
        same.setdefault((summary(row["doc"]), names, kin), {}).update(row["paths"])
    entries = [_Entry(_best_first(paths), said, names) for (said, names, _), paths in same.items() if said]
    return sorted(entries, key=lambda entry: entry.name)


def _best_first(paths: dict[str, bool]) -> list[str]:
    """Order the paths to one object: through no ``core``, fewest parts, not by way of a subclass, then the shortest."""

    def order(path: str) -> tuple[bool, int, bool, int, str]:
        parts = re.split("[:.]", path)
        return "core" in parts, len(parts), not paths[path], len(path), path

    return sorted(paths, key=order)


def _texts(entries: list[_Entry]) -> list[str]:
    """Return ``package name: summary`` of each object.

    The name is that of a function or ``Class.method``; if two objects would look the same,
    it starts from the package (``numpy ma.stack``).
    """
    counts = Counter((entry.short, entry.summary) for entry in entries)
    texts = []
    for entry in entries:
        package, name = entry.short
        clear = counts[entry.short, entry.summary] == 1
        texts.append(f"{package} {name if clear else entry.name.partition('.')[2]}: {entry.summary}")
    return texts


def _walk(package: str, step: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return {doc, paths} of every docstring of the package, read in a separate process; none if it failed."""
    rows: list[dict[str, Any]] = []
    with suppress(OSError):  # the interpreter may be missing
        for row in _lines(package):
            if "module" in row:
                step(1)
            elif "done" in row:
                return rows
            else:
                rows.append(row)
    return []


def _lines(package: str) -> Iterator[dict[str, Any]]:
    quiet = {"MPLBACKEND": "Agg", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    same_packages = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    surroundings = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command = [sys.executable or "python3", "-P", "-W", "ignore", "-m", "megalabel.data.builtin._walk", package]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=surroundings | quiet | same_packages,
    ) as process:
        assert process.stdout is not None
        yield from (orjson.loads(line) for line in process.stdout)
