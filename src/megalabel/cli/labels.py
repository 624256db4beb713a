"""``megalabel labels``: add, remove, rename and list the labels of a trained model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._find_label import find_label, shorten
from megalabel.cli._options import JsonOption, print_json, say
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.model import Model

__all__ = ["app"]

app = typer.Typer(help="Add, remove, rename or list the labels of a trained model.", no_args_is_help=True)

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder or a saved model; the command changes it.")
]


@app.command()
def add(
    run: RunArgument,
    text: Annotated[list[str] | None, typer.Option(help="The text of a new label; repeat for several.")] = None,
    uid: Annotated[
        list[str] | None,
        typer.Option(
            help="Its uid, one per text. By default the text, if that is the uid of the other labels; else a new one."
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help='JSON lines {"text", "uid"}; uids are optional.')
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add labels by their texts, without training.

    Example: megalabel labels add runs/first --text "a label nobody trained on"
    """
    from megalabel.errors import SettingError

    texts, uids = list(text or []), None if uid is None else list(uid)
    if source is not None:
        if texts or uids:
            raise SettingError("give either --text or --input, not both")
        texts, uids = _read(source)
    if not texts:
        raise SettingError("no label to add", remedy="give --text or --input")
    with _changing_model(run) as model:
        added = list(zip(model.add_labels(texts, uids), texts, strict=True))
        _warn_of_same(model, [new_uid for new_uid, _ in added])
    if as_json:
        print_json({"added": [{"uid": new_uid, "text": new_text} for new_uid, new_text in added]})
        return
    for new_uid, new_text in added:
        typer.echo(f"{new_uid}  {new_text}")


@app.command()
def remove(
    run: RunArgument,
    names: Annotated[list[str], typer.Argument(metavar="LABEL...", help="Uids or texts of labels; see labels list.")],
    as_json: JsonOption = False,
) -> None:
    """Remove labels from all searches; other labels are unchanged.

    Example: megalabel labels remove runs/first added-4236
    """
    with _changing_model(run) as model:
        uids = [_uid(model, name) for name in names]
        model.remove_labels(uids)
    if as_json:
        print_json({"removed": uids})
    else:
        typer.echo(f"{len(uids):,} removed, {counted(model.state.alive, 'label')} left")


@app.command()
def rename(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="LABEL", help="Uid or text of the label; see labels list.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Its new text.")],
    as_json: JsonOption = False,
) -> None:
    """Change the text of a label; what the model learnt about it stays.

    Example: megalabel labels rename runs/first added-4236 "a better text"
    """
    with _changing_model(run) as model:
        uid = _uid(model, name)
        model.rename_label(uid, text)
        _warn_of_same(model, [uid])
    if as_json:
        print_json({"renamed": {"uid": uid, "text": text}})
    else:
        typer.echo(f"{uid}  {text}")


@app.command("list")
def list_labels(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    find: Annotated[
        str | None, typer.Option(help="Only labels whose text or uid contains this, ignoring case.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of labels to list.", min=1)] = None,
    as_json: JsonOption = False,
) -> None:
    """List labels with uid, number of training points and text.

    Example: megalabel labels list runs/first --find matrix --limit 10
    """
    from megalabel.model.store import read_labels

    words = None if find is None else find.casefold()
    rows = [
        row
        for row in read_labels(run)
        if words is None or words in row["text"].casefold() or words in row["uid"].casefold()
    ]
    shown = rows[:limit]
    if as_json:
        print_json({"labels": shown})
        return
    for row in shown:
        typer.echo(f"{row['uid']}  {row['points']:,}  {row['text']}")
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown):,} more")


def _uid(model: Model, name: str) -> str:
    """Return the uid of the label with this uid or text."""
    return model.labels.uids[find_label(name, model.labels, model.state.removed.tolist(), whole=True)]


def _warn_of_same(model: Model, uids: Sequence[str]) -> None:
    """Say which of these labels have a text that another label has too."""
    labels, gone = model.labels, frozenset(model.state.removed.tolist())
    by_text: dict[str, list[str]] = {}
    for label, (uid, text) in enumerate(zip(labels.uids, labels.texts, strict=True)):
        if label not in gone:
            by_text.setdefault(text, []).append(uid)
    texts = dict(zip(labels.uids, labels.texts, strict=True))
    for uid in uids:
        others = [other for other in by_text[texts[uid]] if other != uid]
        if others:
            say(f"{uid}: another label, {shorten(others[0])}, has the same text: {shorten(texts[uid])}")


@contextmanager
def _changing_model(run: Path) -> Iterator[Model]:
    """Provide the model; its changes are recorded in its folder. A lock keeps other processes from changing it."""
    from megalabel.errors import WriteError
    from megalabel.model import Model
    from megalabel.model.changing import changing
    from megalabel.model.journal import Journal
    from megalabel.model.store import find_model

    folder = find_model(run, change=True)
    with changing(folder, say):
        model = Model.load(folder, device="cpu")  # a change takes milliseconds
        if model.live.shared is not None:  # which is where changes are recorded
            yield model
            return
        journal = Journal(model, folder)
        yield model
        if journal.due:
            try:
                journal.fold()
            except WriteError as error:
                say(f"the change is recorded, but the model could not be saved whole: {error}")
        journal.close()
    beside = model.indexes.beside(model.state)
    if beside:
        what = "labels not yet in the index, scored one by one in every search"
        say(f"{what}: {beside:,}; run megalabel index to add them")


def _read(path: Path) -> tuple[list[str], list[str] | None]:
    """Return the texts and uids of a file; uids are None if no row has one."""
    from megalabel.errors import DataError
    from megalabel.files import json_rows

    rows = list(json_rows(path))
    for number, row in rows:
        if not isinstance(row.get("text"), str):
            raise DataError('label without "text"', path=path, line=number)
        if ("uid" in row) != ("uid" in rows[0][1]):
            raise DataError("some labels have a uid and others do not", path=path, line=number)
    texts = [row["text"] for _, row in rows]
    return texts, [row["uid"] for _, row in rows] if rows and "uid" in rows[0][1] else None
