"""``megalabel graph``: the labels that go together with a label."""

from __future__ import annotations

from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import FormatOption, JsonOption, SeedOption, print_json, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from megalabel.data.dataset import Dataset

__all__ = ["graph"]

_KINDS = ("counts", "walk")
_BAR = 24  # characters of a bar of weight 1


def graph(
    source: Annotated[str, typer.Argument(metavar="D", help="A built-in name (pydocs, ...), a folder or a file.")],
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Text, uid or number of a label; part of a text will do.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--graph", help="counts of shared points (default), or random walk over them.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Leave out weights that are not above this, in [0, 1); 0.1 unless given.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Neighbours shown each way.", min=1)] = 10,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the graph.")] = None,
    saved: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Show a saved graph of D instead of making one.")
    ] = None,
    data_format: FormatOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Print the neighbours of a label in the label graph, with bars, both ways.

    The first list answers: when this label's text is a query, which labels are its targets
    (what Gandalf trains on)? A weight of 0.40 says that 40% of the training points of this
    label have the other one too. The second list turns it round: labels whose own text has
    this label among its targets. The two differ: nearly every point of a rare label may
    have a frequent one, and not the other way. Beside the bar stands the number of
    training points of the label.

    Example: megalabel graph pydocs --label "numpy std:"

    Example: megalabel graph pydocs --graph walk --delta 0.2 --out walk.npz

    Example: megalabel graph pydocs --load walk.npz --label 17 -k 5
    """
    from megalabel.cli._find_label import find_label
    from megalabel.data.load import load
    from megalabel.errors import DataError

    _check(label, kind, delta, out, saved)
    data = load(source, format=data_format, say=say)
    if not any(text.strip() for text in data.labels.texts):
        raise DataError(f"the labels of {data.name} have no text", remedy="a label graph ties label texts; give them")
    asked = None if label is None else find_label(label, data.labels)
    found = _make(data, kind or "counts", 0.1 if delta is None else delta, saved, seed)
    if out is not None:
        from megalabel.graphs.store import save_graph

        save_graph(found, out, data.labels)
        say(f"{out}: {found.shape[0]:,} labels, {found.nnz - found.shape[0]:,} pairs")
    if asked is not None:
        document = _neighbours(found, data, asked, k)
        if as_json:
            print_json(document)
        else:
            typer.echo(_page(document))
    elif as_json:
        print_json({"labels": found.shape[0], "pairs": int(found.nnz - found.shape[0])})


def _check(label: str | None, kind: str | None, delta: float | None, out: Path | None, saved: Path | None) -> None:
    """Refuse what cannot work before the data is read."""
    from megalabel.errors import SettingError, nearest
    from megalabel.graphs._checks import check_delta

    if label is None and out is None:
        raise SettingError("there is nothing to show", remedy='give --label "...", or --out FILE to save the graph')
    if kind is not None and kind not in _KINDS:
        raise SettingError(f"there is no graph {kind!r}", remedy=nearest(kind, _KINDS))
    if saved is not None and (kind is not None or delta is not None):
        raise SettingError("a loaded graph is finished, --graph and --delta cannot change it", remedy="drop --load")
    if delta is not None:
        check_delta(delta)


def _make(data: Dataset, kind: str, delta: float, saved: Path | None, seed: int) -> csr_matrix:
    """Return the targets of all label texts; a graph without a pair of labels is refused."""
    from megalabel.errors import DataError
    from megalabel.graphs import cooccurrence, load_graph, random_walk, walk_targets

    if saved is not None:
        found = load_graph(saved, data.labels)
    elif kind == "walk":
        found = walk_targets(random_walk(data.train.targets, seed=seed), delta)
    else:
        found = cooccurrence(data.train.targets, delta)
    if found.nnz == int((found.diagonal() > 0).sum()):
        where = "in this file" if saved is not None else f"of {data.name} above delta {delta:g}"
        raise DataError(
            f"the graph is empty: no two labels {where} share a training point",
            path=saved,
            remedy=None if saved is not None or delta == 0 else "try a smaller --delta",
        )
    return found


def _neighbours(found: csr_matrix, data: Dataset, label: int, k: int) -> dict[str, Any]:
    """Return the label and its best k neighbours each way, ready for JSON."""
    import numpy as np

    counts = np.bincount(data.train.targets.indices, minlength=len(data.labels))

    def about(number: int) -> dict[str, Any]:
        text, uid = data.labels.texts[number], data.labels.uids[number]
        return {"id": number, "uid": uid, "text": text, "points": int(counts[number])}

    def best(ids: NDArray[np.integer[Any]], weights: NDArray[np.floating[Any]]) -> list[dict[str, Any]]:
        order = np.lexsort((ids, -weights))
        order = order[ids[order] != label][:k]
        return [{**about(int(ids[i])), "weight": round(float(weights[i]), 4)} for i in order]

    row, column = found[label].tocsr(), found[:, label].tocoo()
    document = {
        **about(label),
        "neighbours": row.nnz - int(label in row.indices),
        "neighbour_of": column.nnz - int(label in column.row),
    }
    return {**document, "targets": best(row.indices, row.data), "target_of": best(column.row, column.data)}


def _page(document: dict[str, Any]) -> str:
    """Return the lists with bars, texts cut to the width of the terminal."""
    from megalabel.cli._find_label import shorten

    columns = get_terminal_size().columns

    def name(about: dict[str, Any], used: int) -> str:
        return shorten(about["text"], max(20, columns - used)) or str(about["uid"])

    place = f"(label {document['id']}, {document['points']:,} training points)"
    lines = [f"{name(document, len(place) + 2)}  {place}"]
    parts = (
        ("Its text as a query has the targets", "targets", "neighbours"),
        ("It is a target of the texts of", "target_of", "neighbour_of"),
    )
    for title, key, count in parts:
        rows = document[key]
        lines += ["", f"{title}{':' if rows else ' no other label'}"]
        width = max((len(f"{row['points']:,}") for row in rows), default=0)
        lines += [
            f"  {row['weight']:.2f} {_bar(row['weight'])} {row['points']:>{width},}  {name(row, width + _BAR + 10)}"
            for row in rows
        ]
        if document[count] > len(rows):
            lines.append(f"  and {document[count] - len(rows):,} more")
    return "\n".join(lines)


def _bar(weight: float) -> str:
    """Return a bar of fixed width, in eighths of a character.

    >>> _bar(0.5)
    '████████████            '
    """
    eighths = round(min(max(weight, 0.0), 1.0) * _BAR * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + " ▏▎▍▌▋▊▉"[rest] * bool(rest)).ljust(_BAR)
