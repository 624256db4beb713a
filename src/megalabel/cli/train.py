"""``megalabel train``: train a recipe on a data set."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import (
    DataOption,
    FormatOption,
    OwnDeviceOption,
    report_run,
    say,
    table_command,
    table_options,
)

if TYPE_CHECKING:
    from megalabel.data.formats import Options

__all__ = ["train"]


@table_command
def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name from `megalabel recipes`, or a YAML file.")],
    data: DataOption,
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="Folder to write: recipe, metrics, checkpoints, model, report.")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe: training.epochs=3"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed; overrides the recipe.")] = None,
    device: OwnDeviceOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in RUN from its last checkpoint.")] = False,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Keep checkpoints and stages after the model is saved.")
    ] = False,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also log to tensorboard (RUN/tensorboard) or wandb; repeat for both."),
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report/--no-report", help="Evaluate on the test rows, print metrics, write RUN/report.html."),
    ] = True,
    data_format: FormatOption = None,
    force: Annotated[bool, typer.Option("--force", help="Train even if the memory seems too small.")] = False,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="With torchrun: how long a rank waits for another.")
    ] = 600,
    *,
    table: Options,
) -> None:
    """Train a recipe on a data set and write the run to a folder.

    Checkpoints and weights are selected on validation rows, which are held out of train if
    the data has none. Ctrl-C or SIGTERM saves the state; --resume continues with identical results.
    Checkpoints are removed once the model is saved.

    Example: megalabel train unidec-cpu --data pydocs --out runs/first

    On several devices or machines: torchrun --nproc-per-node=4 -m megalabel train ...
    """
    from megalabel.data.load import load
    from megalabel.device import find_device
    from megalabel.plan.check_memory import check_memory
    from megalabel.recipes.load_recipe import load_recipe
    from megalabel.trainer import train_rank
    from megalabel.training.distributed import join
    from megalabel.training.phase import Stopped
    from megalabel.training.run_folder import check_complete

    overrides = [
        *([] if seed is None else [f"seed={seed}"]),
        *([] if device is None else [f"training.device={device}"]),
    ]
    try:
        with join(timeout=timeout) as ranks:
            loaded = load_recipe(recipe, [*(changes or []), *overrides])
            found_device = find_device(ranks.device(loaded.training.device))
            if not resume:
                ranks.on_rank0(lambda: check_complete(out))  # before the data are read
            dataset = ranks.rank0_first(
                lambda: load(data, format=data_format, options=table, say=say if ranks.first else lambda line: None)
            )
            if not force:
                check_memory(loaded, dataset, str(found_device))
            try:
                model = train_rank(
                    loaded,
                    dataset,
                    out,
                    resume=resume,
                    keep_checkpoints=keep_checkpoints,
                    log=log or (),
                    ranks=ranks,
                    say=say,
                )
            except Stopped:
                command = [*ranks.command, "train", recipe, "--data", data, "--out", str(out)]
                command += [part for change in changes or [] for part in ("--set", change)]
                command += [] if seed is None else ["--seed", str(seed)]
                command += [] if device is None else ["--device", device]
                command += [] if data_format is None else ["--from", data_format]
                command += table_options(table)
                command += ["--keep-checkpoints"] if keep_checkpoints else []
                command += [part for name in log or [] for part in ("--log", name)]
                command += [] if report else ["--no-report"]
                command += ["--force"] if force else []
                if ranks.first:
                    say(f"stopped and saved; continue with: {shlex.join([*command, '--resume'])}")
                raise
    except Stopped as stop:
        raise typer.Exit(128 + stop.number) from stop
    if model is None:
        return  # rank 0 has it
    if report:
        report_run(out, model, dataset)
    say(f"{out}: done; next: megalabel predict {shlex.quote(str(out))} --text '...'")
