"""Walk one installed package and print the docstring of every public object, as JSON lines.

Runs in a separate process (``python -m megalabel.data.builtin._walk numpy``): importing a
whole package has side effects, and some modules print, warn, exit or crash on import.
What modules print is discarded; the real standard output gets
``{"module": name}`` for each module seen, then ``{"doc": text, "paths": [["numpy.linalg:norm", true], ...]}``
for each distinct docstring, and ``{"done": true}`` last.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import sys
import typing
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

__all__ = ["walk"]

SKIPPED = {"tests", "test", "conftest", "setup", "benchmarks", "examples", "sandbox", "externals", "backends"}
MODULES = 5_000  # more than any package has; a guard against packages that create modules


def walk(package: str, seen: Callable[[str], None] | None = None) -> dict[str, dict[str, bool]]:
    """Return docstring -> the paths ``module:name`` or ``module:Class.name`` that lead to it.

    The value of a path is False if the class inherits the member.
    """
    docs: dict[str, dict[str, bool]] = {}

    def keep(path: str, item: Any, defined: bool = True) -> None:
        doc = item.__doc__
        if isinstance(doc, str) and doc.strip():
            docs.setdefault(inspect.cleandoc(doc), {})[path] = defined

    for module in _modules(package):
        if seen is not None:
            seen(module.__name__)
        for name, item in _members(module, package):
            _safely(_collect, f"{module.__name__}:{name}", item, package, keep)
    return docs


def _safely(work: Callable[..., Any], *args: Any) -> Any:
    """Return work(*args), or None if it raises anything, such as SystemExit on import."""
    try:
        return work(*args)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _modules(package: str) -> Iterator[ModuleType]:
    waiting = [package]
    for _ in range(MODULES):
        if not waiting:
            return
        module = _safely(importlib.import_module, waiting.pop())
        if isinstance(module, ModuleType):
            yield module
            inner = sorted(_safely(_inner, module) or (), reverse=True)
            waiting.extend(f"{module.__name__}.{name}" for name in inner)


def _inner(module: ModuleType) -> list[str]:
    names = [info.name for info in pkgutil.iter_modules(module.__path__)]
    return [name for name in names if not name.startswith("_") and name not in SKIPPED]


def _members(module: ModuleType, package: str) -> Iterator[tuple[str, Any]]:
    """Yield the public members: those in ``__all__``, else those it defines (a package: those it imports as well)."""
    listed = _safely(_listed, module)
    home = None if listed is not None or hasattr(module, "__path__") else module.__name__
    for name in sorted(set(dir(module) if listed is None else listed)):
        item = None if name.startswith("_") else _safely(getattr, module, name)
        if item is not None and _safely(_belongs, item, package, home, listed is not None):
            yield name, item


def _listed(module: ModuleType) -> list[str]:
    return [name for name in module.__all__ if isinstance(name, str)]


def _belongs(item: Any, package: str, home: str | None, listed: bool) -> bool:
    if isinstance(item, ModuleType) or (home is not None and item.__module__ != home):
        return False
    if inspect.isclass(item) or inspect.isroutine(item):
        return listed if item.__module__ is None else _root(item.__module__) == package
    if type(item).__name__ == "ufunc":
        return True
    return _root(type(item).__module__) == package and (listed or callable(item))


def _collect(path: str, item: Any, package: str, keep: Callable[..., None], inside: bool = False) -> None:
    keep(path, item)
    if not inspect.isclass(item):
        return
    for name in dir(item):
        home = None if name.startswith("_") else next((base for base in item.__mro__ if name in vars(base)), None)
        if home is None or _root(home.__module__) != package:
            continue
        member = vars(home)[name]
        if isinstance(member, classmethod | staticmethod):
            member = member.__func__
        plain = inspect.isfunction(member) or inspect.isdatadescriptor(member)
        # Accessors such as Series.str are classes when reached through the class.
        inner = None if plain or inside else _safely(getattr, item, name)
        inner = typing.get_origin(inner) or inner
        if inspect.isclass(inner):
            if _root(inner.__module__) == package:
                _collect(f"{path}.{name}", inner, package, keep, inside=True)
        elif plain or inspect.isroutine(member):
            _safely(keep, f"{path}.{name}", member, home is item)


def _root(module: str) -> str:
    return module.partition(".")[0]


def main(package: str) -> None:
    """Walk the package with everything it prints thrown away."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")

    def put(row: dict[str, Any]) -> None:
        out.write(json.dumps(row) + "\n")
        out.flush()

    for doc, paths in walk(package, lambda name: put({"module": name})).items():
        put({"doc": doc, "paths": sorted(paths.items())})
    put({"done": True})
    os._exit(0)  # no clean-up by what was imported


if __name__ == "__main__":
    main(sys.argv[1])
