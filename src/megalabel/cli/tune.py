"""``megalabel tune``: search the settings of a recipe."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import (
    DataOption,
    FormatOption,
    JsonOption,
    OwnDeviceOption,
    SeedOption,
    print_json,
    say,
    table_command,
    table_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from megalabel.data.formats import Options
    from megalabel.tuning import Trial

__all__ = ["tune"]


@table_command
def tune(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name from `megalabel recipes`, or a YAML file.")],
    data: DataOption,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write: trials.jsonl and best.yaml.")],
    spaces: Annotated[
        list[str] | None,
        typer.Option(
            "--space",
            metavar="KEY=VALUES",
            help="Search this setting: KEY=a,b,c, KEY=low..high or 'KEY=low..high log'.",
        ),
    ] = None,
    only: Annotated[
        bool, typer.Option("--only", help="Search only the settings of --space, not the default ones too.")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe, everywhere."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Trials in all.")] = 20,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, metavar="M", help="Begin no trial after so many minutes of training.")
    ] = None,
    seed: SeedOption = 0,
    device: OwnDeviceOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the search in FOLDER, perhaps with more --trials or --minutes.")
    ] = False,
    data_format: FormatOption = None,
    as_json: JsonOption = False,
    *,
    table: Options,
) -> None:
    """Search the settings of a recipe on validation rows, and write the best recipe as YAML.

    By default it searches learning rates, temperatures, epochs, batch size, negatives and positives
    around the values of the recipe. Poor trials are stopped early. The first trial is the recipe as it
    is. Every trial is kept as it ends: after Ctrl-C or a crash, --resume continues.

    Example: megalabel tune unidec-cpu --data pydocs --out tuned --trials 12

    Example: megalabel tune auto -d pydocs --out tuned --space 'training.encoder.lr=1e-4..1e-2 log'

    Then: megalabel train tuned/best.yaml --data pydocs --out runs/tuned
    """
    from megalabel.data.load import load
    from megalabel.errors import SettingError
    from megalabel.recipes.load_recipe import load_recipe
    from megalabel.training.phase import Stopped
    from megalabel.tuning import default_space, read_space, tune
    from megalabel.tuning.search import BEST

    if only and not spaces:
        raise SettingError("--only needs --space", remedy="name what to search, or leave --only out")
    own = [*(changes or []), *([] if device is None else [f"training.device={device}"])]
    space = ({} if only else default_space(recipe, own)) | read_space(spaces or [], recipe, own)
    dataset = load(data, format=data_format, options=table, say=say)
    say(f"searching {len(space)} settings; the first trial is the recipe as it is")
    for key, axis in space.items():
        say(f"  {key}: {axis}")
    try:
        done = tune(
            recipe, dataset, out, space=space, changes=own, trials=trials, minutes=minutes, seed=seed,
            resume=resume, say=say,
        )  # fmt: skip
    except Stopped as stop:
        command = ["megalabel", "tune", recipe, "--data", data, "--out", str(out)]
        command += [part for text in spaces or [] for part in ("--space", text)] + ["--only"] * only
        command += [part for change in changes or [] for part in ("--set", change)]
        command += ["--trials", str(trials)] + ([] if minutes is None else ["--minutes", f"{minutes:g}"])
        command += ["--seed", str(seed)] + ([] if device is None else ["--device", device])
        command += ([] if data_format is None else ["--from", data_format]) + table_options(table)
        say(f"stopped and saved; continue with: {shlex.join([*command, '--resume'])}")
        raise typer.Exit(128 + stop.number) from stop
    select = load_recipe(recipe, own).training.select
    if as_json:
        print_json({"metric": select, "best": str(out / BEST), "trials": [asdict(trial) for trial in done]})
    else:
        _show(done, select)
    say(f"next: megalabel train {shlex.quote(str(out / BEST))} --data {shlex.quote(data)} --out RUN")


def _show(trials: Sequence[Trial], select: str) -> None:
    """Print the trials, the best first."""
    from megalabel.training.display import clock_time
    from megalabel.tuning.search import settings_text

    typer.echo(f"{'trial':>5}  {select:>7}  {'epoch':>7}  {'time':>7}  settings")
    for trial in sorted(trials, key=lambda trial: (-(trial.value or 0.0), trial.number)):
        value = "-" if trial.value is None else f"{trial.value:.2f}"
        end = "" if trial.end == "done" else f"  ({trial.end})"
        epochs = f"{trial.epoch}/{trial.epochs}"
        columns = f"{trial.number + 1:>5}  {value:>7}  {epochs:>7}  {clock_time(trial.seconds):>7}"
        typer.echo(f"{columns}  {settings_text(trial.settings)}{end}")
