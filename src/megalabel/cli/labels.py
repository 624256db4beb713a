"""``megalabel labels``: add, remove, rename and list the labels of a trained model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import JsonOption, print_json, say

if TYPE_CHECKING:
    from megalabel.model import Model

__all__ = ["app"]

app = typer.Typer(help="Add, remove, rename or list the labels of a trained model.", no_args_is_help=True)

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model; it is changed.")]
_CPU = "cpu"  # a change is the work of milliseconds


@app.command()
def add(
    run: RunArgument,
    text: Annotated[list[str] | None, typer.Option(help="The text of a new label; may be given several times.")] = None,
    uid: Annotated[list[str] | None, typer.Option(help="Its name, one for each text; made up if left out.")] = None,
    source: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help='JSON lines {"text", "uid"}, the uid may be missing.')
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add labels by their texts alone; nothing is trained.

    Example: megalabel labels add runs/first --text "a label nobody trained on"
    """
    from megalabel.errors import SettingError

    texts, uids = list(text or []), None if uid is None else list(uid)
    if source is not None:
        if texts or uids:
            raise SettingError("give either --text or --input")
        texts, uids = _read(source)
    if not texts:
        raise SettingError("there is no label to add", remedy="give --text or --input")
    with _changed(run) as model:
        found = model.add_labels(texts, uids)
    if as_json:
        print_json({"added": [{"uid": one, "text": words} for one, words in zip(found, texts, strict=True)]})
        return
    for one, words in zip(found, texts, strict=True):
        typer.echo(f"{one}  {words}")


@app.command()
def remove(
    run: RunArgument,
    uids: Annotated[list[str], typer.Argument(metavar="UID...", help="Names of the labels, see labels list.")],
    as_json: JsonOption = False,
) -> None:
    """Remove labels: no search finds them any more, all others stay as they are.

    Example: megalabel labels remove runs/first added-4236
    """
    with _changed(run) as model:
        model.remove_labels(uids)
    if as_json:
        print_json({"removed": uids})
    else:
        typer.echo(f"{len(uids):,} removed, {model.state.alive:,} labels left")


@app.command()
def rename(
    run: RunArgument,
    uid: Annotated[str, typer.Argument(help="Name of the label, see labels list.")],
    text: Annotated[str, typer.Argument(help="Its new text.")],
    as_json: JsonOption = False,
) -> None:
    """Give a label another text; what was learnt from its points stays.

    Example: megalabel labels rename runs/first added-4236 "a better text"
    """
    with _changed(run) as model:
        model.rename_label(uid, text)
    if as_json:
        print_json({"renamed": {"uid": uid, "text": text}})
    else:
        typer.echo(f"{uid}  {text}")


@app.command("list")
def list_labels(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    find: Annotated[str | None, typer.Option(help="Only labels whose text or uid has this in it, in any case.")] = None,
    most: Annotated[int | None, typer.Option(help="At most so many.", min=1)] = None,
    as_json: JsonOption = False,
) -> None:
    """List labels: uid, training points, text.

    Example: megalabel labels list runs/first --find matrix --most 10
    """
    from megalabel.model.store import read_labels

    wanted = None if find is None else find.casefold()
    rows = [
        row
        for row in read_labels(run)
        if wanted is None or wanted in row["text"].casefold() or wanted in row["uid"].casefold()
    ]
    shown = rows[:most]
    if as_json:
        print_json({"labels": shown})
        return
    for row in shown:
        typer.echo(f"{row['uid']}  {row['points']:,}  {row['text']}")
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown):,} more")


@contextmanager
def _changed(run: Path) -> Iterator[Model]:
    """Give the model to be changed and save it; meanwhile no other process changes it."""
    from megalabel.model import Model
    from megalabel.model.changing import changing
    from megalabel.model.store import find_model

    place = find_model(run)
    with changing(place, say):
        model = Model.load(place, device=_CPU)
        yield model
        model.save(place, overwrite=True)
    beside = model.indexes.beside(model.state)
    if beside:
        say(f"labels beside the index, looked at one by one in every search: {beside:,}; megalabel index puts them in")


def _read(path: Path) -> tuple[list[str], list[str] | None]:
    """Return texts and uids of a file; uids are all there or none."""
    from megalabel.errors import DataError
    from megalabel.files import json_rows

    rows = list(json_rows(path))
    for number, row in rows:
        if not isinstance(row.get("text"), str):
            raise DataError('a label without "text"', path=path, line=number)
        if ("uid" in row) != ("uid" in rows[0][1]):
            raise DataError("some labels have a uid and some have none", path=path, line=number)
    texts = [row["text"] for _, row in rows]
    return texts, [row["uid"] for _, row in rows] if rows and "uid" in rows[0][1] else None
