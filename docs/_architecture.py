"""The generated parts of docs/architecture.md: the picture and the table of packages, from the real imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "megalabel"
PICTURE = ROOT / "docs" / "img" / "architecture.svg"

TEXT, LEARN, USE = "#2f6690", "#8a4f7d", "#3a7d44"  # white letters on these and the grey of arrows suit any page
GREY = "#8a94a0"
PACKAGES = {
    "data": (TEXT, "formats, tokens, sets"),
    "metrics": (TEXT, "P, nDCG, PSP, …"),
    "graphs": (TEXT, "label graphs, clusters"),
    "augment": (TEXT, "Gandalf, mixup"),
    "index": (TEXT, "exact, HNSW, IVF"),
    "losses": (LEARN, "plain and streamed"),
    "encoders": (LEARN, "bag, CNN, transformer"),
    "heads": (LEARN, "one file per kind"),
    "network": (LEARN, "encoders and heads"),
    "fusion": (LEARN, "heads combined"),
    "batching": (LEARN, "order, pool, negatives"),
    "recipes": (LEARN, "YAML and its schema"),
    "training": (LEARN, "loop, step, optimisers"),
    "model": (USE, "predict, labels, save"),
    "trainer": (LEARN, "a run and its stages"),
    "distiller": (LEARN, "one vector per label"),
    "tuning": (LEARN, "search over settings"),
    "updater": (LEARN, "new rows, learnt"),
    "plan": (USE, "memory and time"),
    "report": (USE, "HTML reports"),
    "serve": (USE, "HTTP server"),
    "integrations": (USE, "exports, scikit-learn"),
    "cli": (USE, "the commands"),
}
Graph = dict[str, set[str]]  # package -> packages it imports


def import_graph() -> Graph:
    """Return the imports between packages; modules outside of packages count if they stand between two of them."""
    graph: Graph = {}
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        graph.setdefault(package, set()).update(name for name in _imports(path) if name != package)
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    between = {name for name in graph if graph[name] & folders and any(name in graph[other] for other in folders)}
    kept = [name for name in PACKAGES if name in folders | between]
    kept += sorted((folders | between) - set(kept) - {"__init__"})
    return {name: graph[name] & set(kept) for name in kept}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "megalabel":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("megalabel."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("megalabel."))


def reduced(graph: Graph) -> Graph:
    """Return the transitive reduction: an import is left out if it follows from others.

    >>> reduced({"a": set(), "b": {"a"}, "c": {"a", "b"}})
    {'a': set(), 'b': {'a'}, 'c': {'b'}}
    """

    def reach(name: str) -> set[str]:
        return graph[name].union(*(reach(other) for other in graph[name]))

    return {
        name: {other for other in imports if not any(other in reach(third) for third in imports - {other})}
        for name, imports in graph.items()
    }


def packages_text(table: Callable[[list[str], list[list[str]]], str]) -> str:
    """Return the table of packages."""
    graph = import_graph()
    rows = []
    for name in graph:
        path = f"../src/megalabel/{name}" + ("" if (SOURCE / name).is_dir() else ".py")
        used = [f"`{other}`" for other in graph if other in reduced(graph)[name]]
        rows.append([f"[{name}]({path})", PACKAGES.get(name, ("", ""))[1], ", ".join(used) or "nothing"])
    return table(["package", "what it holds", "builds on"], rows)


def is_fresh() -> bool:
    """Tell whether the picture shows the imports of today."""
    text = PICTURE.read_text(encoding="utf-8") if PICTURE.is_file() else ""
    return _description(reduced(import_graph())) in re.sub(r"\s+", " ", text)


def _description(graph: Graph) -> str:
    return "; ".join(f"{name}: {' '.join(sorted(graph[name])) or '-'}" for name in graph)


# ------------------------------------------------------------------ layout


def _rows(graph: Graph) -> list[list[str]]:
    """Return the packages in rows, each below all it imports and as low as the packages that import it allow."""
    depth: dict[str, int] = {}

    def down(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((down(other) for other in graph[name]), default=-1)
        return depth[name]

    last = max(down(name) for name in graph)
    row: dict[str, int] = {}

    def up(name: str) -> int:
        if name not in row:
            row[name] = min((up(other) - 1 for other in graph if name in graph[other]), default=last)
        return row[name]

    rows: list[list[str]] = [[] for _ in range(last + 1)]
    for name in graph:
        rows[up(name)].append(name)
    return rows


def _paths(graph: Graph, rows: list[list[str]]) -> list[list[str]]:
    """Return each arrow as the list of what it passes; a long one gets a place of its own in the rows between."""
    row = {name: place for place, names in enumerate(rows) for name in names}
    paths = []
    for name in graph:
        for other in sorted(graph[name]):
            between = [f"{other}>{name}:{place}" for place in range(row[other] + 1, row[name])]
            for place, dummy in enumerate(between, row[other] + 1):
                rows[place].append(dummy)
            paths.append([other, *between, name])
    return paths


def _width(name: str) -> float:
    return 0.35 if ">" in name else 1.0


def _places(names: list[str]) -> dict[str, float]:
    """Return the middle of each item of a row, the row centred at 0."""
    left = -sum(map(_width, names)) / 2
    places = {}
    for name in names:
        places[name] = left + _width(name) / 2
        left += _width(name)
    return places


def _arrange(rows: list[list[str]], paths: list[list[str]]) -> dict[str, float]:
    """Order every row so that arrows are short and cross little; return the place of each item."""
    links = [pair for path in paths for pair in pairwise(path)]
    places = {name: place for names in rows for name, place in _places(names).items()}

    def cost(order: tuple[str, ...]) -> float:
        now = places | _places(list(order))
        near = [(now[a], now[b], a, b) for a, b in links if a in order or b in order]
        crossed = sum((p[0] - q[0]) * (p[1] - q[1]) < 0 and _same_rows(p, q, order) for p in near for q in near)
        return sum((start - end) ** 2 for start, end, *_ in near) + crossed

    for _ in range(4):
        for place, names in enumerate(rows):
            tries = permutations(sorted(names)) if len(names) <= 7 else [tuple(sorted(names, key=places.__getitem__))]
            rows[place] = list(min(tries, key=cost))
            places |= _places(rows[place])
    return places


def _same_rows(first: Any, second: Any, order: tuple[str, ...]) -> bool:
    return (first[2] in order) == (second[2] in order)


# ------------------------------------------------------------------ picture


def draw_architecture() -> Path:
    """Draw the packages and the reduced imports; the same bytes for the same imports."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "megalabel"
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Curve

    graph = reduced(import_graph())
    rows = _rows(graph)
    paths = _paths(graph, rows)
    x = _arrange(rows, paths)
    y = {name: -float(place) for place, names in enumerate(rows) for name in names}
    wide, high, half = 2.95, 1.3, 0.31
    figure, axis = plt.subplots(figsize=(9.6, 1.05 * len(rows)))
    axis.axis("off")
    for path in paths:
        points = [(x[name] * wide, y[name] * high) for name in path]
        points[0] = points[0][0], points[0][1] - half
        points[-1] = points[-1][0], points[-1][1] + half + 0.07
        vertices, codes = [points[0]], [Curve.MOVETO]
        for (x0, y0), (x1, y1) in pairwise(points):
            vertices += [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)]
            codes += [Curve.CURVE4] * 3
        axis.add_patch(PathPatch(Curve(vertices, codes), fill=False, edgecolor=GREY, linewidth=1.6, capstyle="butt"))
        tip = points[-1][0], points[-1][1] - 0.07
        axis.fill([tip[0], tip[0] - 0.06, tip[0] + 0.06], [tip[1], tip[1] + 0.11, tip[1] + 0.11], color=GREY, lw=0)
    for name in graph:
        colour, about = PACKAGES.get(name, (GREY, ""))
        left, low = x[name] * wide - 1.32, y[name] * high - half
        axis.add_patch(FancyBboxPatch((left, low), 2.64, 2 * half, boxstyle="round,pad=0,rounding_size=0.08",
                                      facecolor=colour, edgecolor="none", zorder=3))  # fmt: skip
        middle = {"color": "white", "ha": "center", "va": "center", "zorder": 4}
        axis.text(x[name] * wide, y[name] * high + 0.12, name, fontsize=10.5, fontweight="bold", **middle)
        axis.text(x[name] * wide, y[name] * high - 0.14, about, fontsize=8, **middle)
    axis.set_aspect("equal")
    axis.autoscale_view()
    PICTURE.parent.mkdir(exist_ok=True)
    about = {"Date": None, "Title": "The packages of megalabel", "Description": _description(graph)}
    figure.savefig(PICTURE, metadata=about, transparent=True, bbox_inches="tight", pad_inches=0.05)
    plt.close(figure)
    return PICTURE
