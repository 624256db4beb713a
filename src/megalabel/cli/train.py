"""``megalabel train``: train by a recipe."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli._options import DataOption, FormatOption, OwnDeviceOption, say
from megalabel.cli._report_run import report_run

__all__ = ["train"]


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name from `megalabel recipes`, or a YAML file.")],
    data: DataOption,
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder of the run: recipe, metrics, checkpoints, model.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: training.epochs=3")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="In place of the recipe's seed.")] = None,
    device: OwnDeviceOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in RUN stopped.")] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Measure on the test rows and write RUN/report.html.")
    ] = True,
    data_format: FormatOption = None,
    force: Annotated[bool, typer.Option("--force", help="Go on even if memory seems too small.")] = False,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Under torchrun: how long one rank waits for another.")
    ] = 600,
) -> None:
    """Train a model and keep the whole run in a folder.

    Everything is selected on validation rows, which are held out of train where the data
    has none. Ctrl-C saves; --resume goes on as if nothing had happened.

    Example: megalabel train unidec-cpu --data pydocs --out runs/first

    On several processors or machines: torchrun --nproc-per-node=4 -m megalabel train ...
    """
    from megalabel.data.load import load
    from megalabel.device import find_device
    from megalabel.plan.check_memory import check_memory
    from megalabel.recipes.load_recipe import load_recipe
    from megalabel.trainer import train_rank
    from megalabel.training.distributed import join
    from megalabel.training.phase import Stopped

    own = [*([] if seed is None else [f"seed={seed}"]), *([] if device is None else [f"training.device={device}"])]
    with join(timeout=timeout) as ranks:
        wanted = load_recipe(recipe, [*(changes or []), *own])
        place = find_device(ranks.device(wanted.training.device))
        dataset = ranks.rank0_first(
            lambda: load(data, format=data_format, say=say if ranks.first else lambda line: None)
        )
        if not force:
            check_memory(wanted, dataset, str(place))
        try:
            model = train_rank(wanted, dataset, out, resume=resume, ranks=ranks, say=say)
        except Stopped:
            again = [*ranks.command, "train", recipe, "--data", data, "--out", str(out)]
            again += [part for change in changes or [] for part in ("--set", change)]
            again += [] if seed is None else ["--seed", str(seed)]
            again += [] if device is None else ["--device", device]
            again += [] if data_format is None else ["--from", data_format]
            again += [] if report else ["--no-report"]
            again += ["--force"] if force else []
            if ranks.first:
                say(f"stopped, and saved; go on with: {shlex.join([*again, '--resume'])}")
            raise
    if model is None:
        return  # the first rank has it
    if report:
        report_run(out, model, dataset)
    say(f"{out}: done; try: megalabel predict {shlex.quote(str(out))} --text '...'")
