"""``megalabel update``: let a trained model learn from new rows and corrections."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import (
    DataOption,
    DeviceOption,
    FormatOption,
    JsonOption,
    SeedOption,
    print_json,
    say,
    table_command,
)

if TYPE_CHECKING:
    from megalabel.data.formats import Options

__all__ = ["update"]


@table_command
def update(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    data: DataOption,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Write the updated model here, and leave the old one.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes of the network over the new rows.")] = 1,
    rate: Annotated[float, typer.Option(help="The recipe's learning rates are multiplied by this.")] = 0.1,
    mix: Annotated[float, typer.Option(min=0, help="Old rows in each epoch, for each new one.")] = 2.0,
    validation: Annotated[
        float, typer.Option(min=0, help="Share of the new texts to measure on; 0 measures nothing.")
    ] = 0.3,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    data_format: FormatOption = None,
    as_json: JsonOption = False,
    *,
    table: Options,
) -> None:
    """Learn from new labelled rows and corrections, without starting over.

    A row whose text is a training text replaces the labels of that row: a correction. Other
    rows are added, and so are labels that the model does not know. All rows of one table are
    new rows, unless it has a column named split; test rows of a data set are never learnt from.

    The network is trained on for a short while, with old rows mixed in; memory, linear, tree and
    overlap heads are fitted on all rows. The model is replaced completely or not at all, and
    RUN/updates.jsonl says what it learnt from, with validation metrics before and after.

    Example: megalabel update runs/first --data more.csv

    Example: megalabel update runs/first --data corrections.csv --out runs/second
    """
    from megalabel.training.phase import Stopped
    from megalabel.updater import UpdateSettings, load_rows, update_run

    settings = UpdateSettings(epochs, rate, mix, validation, seed)
    dataset = load_rows(run, data, table, format=data_format, say=say)
    try:
        updated = update_run(run, dataset, out, settings=settings, device=device, say=say)
    except Stopped as stop:
        say("stopped; the model is as it was")
        raise typer.Exit(128 + stop.number) from stop
    target = run if out is None else out
    if as_json:
        print_json(updated.history)
    say(f"{target}: done; next: megalabel predict {shlex.quote(str(target))} --text '...'")
