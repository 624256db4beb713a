"""``megalabel graph``: the neighbours of a label in the label graph."""

from __future__ import annotations

from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import FormatOption, JsonOption, SeedOption, print_json, say
from megalabel.wording import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from megalabel.data.dataset import Dataset

__all__ = ["graph"]

_BAR = 24  # characters of a bar of weight 1


def graph(
    source: Annotated[
        str, typer.Argument(metavar="D", help="Data set: a built-in name (pydocs, ...), a folder or a file.")
    ],
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Uid, text, part of the text or id of a label.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--graph",
            help="counts (common training points, the default), shared_counts (those with many labels count less), "
            "shrunk_counts (rare labels count less) or walk (random walk).",
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Keep only weights above this, in [0, 1); 0.1 by default.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Neighbours to show in each direction.", min=1)] = 10,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the graph to this file.")] = None,
    saved: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Load a saved graph of D instead of building one.")
    ] = None,
    data_format: FormatOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Show the neighbours of a label in the label graph.

    The first list holds the targets of the label's text as a query (what Gandalf trains on).
    A weight of 0.40 means that 40% of the training points of this label also have the other
    one. The second list is the reverse: labels whose text has this label as a target. The
    lists differ, because most points of a rare label may have a frequent label while few
    points of the frequent one have the rare one. The number after a bar is the number of
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
        raise DataError(f"the labels of {data.name} have no text", remedy="a label graph needs label texts")
    label_id = None if label is None else find_label(label, data.labels)
    targets = _build(data, kind or "counts", 0.1 if delta is None else delta, saved, seed)
    if out is not None:
        from megalabel.graphs.store import save_graph

        save_graph(targets, out, data.labels)
        say(f"{out}: {counted(targets.shape[0], 'label')}, {counted(targets.nnz - targets.shape[0], 'pair')}")
    if label_id is not None:
        document = _neighbours(targets, data, label_id, k)
        if as_json:
            print_json(document)
        else:
            typer.echo(_page(document))
    elif as_json:
        print_json({"labels": targets.shape[0], "pairs": int(targets.nnz - targets.shape[0])})


def _check(label: str | None, kind: str | None, delta: float | None, out: Path | None, saved: Path | None) -> None:
    """Refuse invalid options before the data is read."""
    from megalabel.errors import SettingError, nearest
    from megalabel.graphs._checks import check_delta
    from megalabel.graphs.label_graph import GRAPHS

    if label is None and out is None:
        raise SettingError("nothing to show", remedy='give --label "...", or --out FILE to save the graph')
    if kind is not None and kind not in GRAPHS:
        raise SettingError(f"unknown graph {kind!r}", remedy=nearest(kind, GRAPHS))
    if saved is not None and (kind is not None or delta is not None):
        raise SettingError("--graph and --delta do not apply to a loaded graph", remedy="drop --load")
    if delta is not None:
        check_delta(delta)


def _build(data: Dataset, kind: str, delta: float, saved: Path | None, seed: int) -> csr_matrix:
    """Return the targets [L, L] of all label texts; a graph without a pair of labels is an error."""
    from megalabel.errors import DataError
    from megalabel.graphs import label_graph, load_graph

    if saved is not None:
        targets = load_graph(saved, data.labels)
    else:
        targets = label_graph(kind, data.train.targets, delta, seed=seed)
    if targets.nnz == int((targets.diagonal() > 0).sum()):
        where = "in this file" if saved is not None else f"of {data.name} above delta {delta:g}"
        raise DataError(
            f"the graph is empty: no two labels {where} share a training point",
            path=saved,
            remedy=None if saved is not None or delta == 0 else "try a smaller --delta",
        )
    return targets


def _neighbours(targets: csr_matrix, data: Dataset, label: int, k: int) -> dict[str, Any]:
    """Return the label and its best k neighbours in each direction, ready for JSON."""
    import numpy as np

    counts = np.bincount(data.train.targets.indices, minlength=len(data.labels))

    def about(number: int) -> dict[str, Any]:
        text, uid = data.labels.texts[number], data.labels.uids[number]
        return {"id": number, "uid": uid, "text": text, "points": int(counts[number])}

    def best(ids: NDArray[np.integer[Any]], weights: NDArray[np.floating[Any]]) -> list[dict[str, Any]]:
        order = np.lexsort((ids, -weights))
        order = order[ids[order] != label][:k]
        return [{**about(int(ids[i])), "weight": round(float(weights[i]), 4)} for i in order]

    row, column = targets[label].tocsr(), targets[:, label].tocoo()
    document = {
        **about(label),
        "neighbours": row.nnz - int(label in row.indices),
        "neighbour_of": column.nnz - int(label in column.row),
    }
    return {**document, "targets": best(row.indices, row.data), "target_of": best(column.row, column.data)}


def _page(document: dict[str, Any]) -> str:
    """Return the lists with bars; texts are cut to the width of the terminal."""
    from megalabel.cli._find_label import shorten

    columns = get_terminal_size().columns

    def name(label: dict[str, Any], used: int) -> str:
        return shorten(label["text"], max(20, columns - used)) or str(label["uid"])

    about = f"(label {document['id']}, {document['points']:,} training points)"
    lines = [f"{name(document, len(about) + 2)}  {about}"]
    parts = (
        ("Targets of its text", "targets", "neighbours"),
        ("Labels whose text has it as a target", "target_of", "neighbour_of"),
    )
    for title, key, count in parts:
        rows = document[key]
        lines += ["", f"{title}{':' if rows else ': none'}"]
        width = max((len(f"{row['points']:,}") for row in rows), default=0)
        lines += [
            f"  {row['weight']:.2f} {_bar(row['weight'])} {row['points']:>{width},}  {name(row, width + _BAR + 10)}"
            for row in rows
        ]
        if document[count] > len(rows):
            lines.append(f"  and {document[count] - len(rows):,} more")
    return "\n".join(lines)


def _bar(weight: float) -> str:
    """Return a bar of fixed width, drawn in eighths of a character.

    >>> _bar(0.5)
    '████████████            '
    """
    eighths = round(min(max(weight, 0.0), 1.0) * _BAR * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + " ▏▎▍▌▋▊▉"[rest] * bool(rest)).ljust(_BAR)
