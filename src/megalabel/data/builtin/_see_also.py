"""Tell which object a name under See Also means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["Names"]

SHORT = {"np": "numpy", "sp": "scipy", "pd": "pandas", "nx": "networkx", "plt": "matplotlib.pyplot", "xr": "xarray"}
LONGEST_SUFFIX = 3  # parts of a dotted name by which an object is known from anywhere in its package


class Names:
    """The dotted names of every object, and how a docstring refers to them.

    Object i is reached by ``paths[i]``, each ``module:name`` or ``module:Class.name``, the
    best name first.

    >>> names = Names([["numpy:sort"], ["numpy:ndarray.sort"], ["numpy.linalg:norm"]])
    >>> names.find("sort", 1), names.find("linalg.norm", 0), names.find("np.sort", 2), names.find("scope", 0)
    (0, 2, 0, None)
    """

    def __init__(self, paths: Sequence[Sequence[str]]) -> None:
        self.paths = paths
        self.places: dict[str, int] = {}
        self.endings: dict[tuple[str, str], set[int]] = {}
        for i, known in enumerate(paths):
            for path in known:
                parts = path.replace(":", ".").split(".")
                self.places.setdefault(".".join(parts), i)
                for size in range(1, min(LONGEST_SUFFIX, len(parts) - 1) + 1):
                    self.endings.setdefault((parts[0], ".".join(parts[-size:])), set()).add(i)

    def find(self, name: str, origin: int) -> int | None:
        """Return the object that ``name`` means in the docstring of object ``origin``, or None.

        First the class and the modules around the origin, from the inside out; then the
        name as it stands; then the only object of the package whose name ends so. The
        origin itself is never meant.
        """
        first, dot, rest = name.partition(".")
        whole = f"{SHORT[first]}.{rest}" if dot and first in SHORT else name
        for scope in self._scopes(origin):
            found = self.places.get(f"{scope}.{name}")
            if found is not None and found != origin:
                return found
        found = self.places.get(whole)
        if found is not None and found != origin:
            return found
        package = self.paths[origin][0].partition(":")[0].partition(".")[0]
        only = self.endings.get((package, name), set()) - {origin}
        return next(iter(only)) if len(only) == 1 else None

    def _scopes(self, origin: int) -> Iterator[str]:
        for path in self.paths[origin]:
            module, _, qualified = path.partition(":")
            scope = ".".join([module, *qualified.split(".")[:-1]])
            while scope:
                yield scope
                scope = scope.rpartition(".")[0]
