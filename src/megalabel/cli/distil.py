"""``megalabel distil``: a student with one vector per label from any trained model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import DeviceOption, FormatOption, report_run, say, table_command, table_options

if TYPE_CHECKING:
    from megalabel.data.formats import Options

__all__ = ["distil"]


@table_command
def distil(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The teacher: a run folder or a saved model.")],
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder to write: the run of the student.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="D",
            help="Train on this set, and report on its test rows; by default, on the teacher's training texts.",
        ),
    ] = None,
    recipe: Annotated[str, typer.Option(metavar="RECIPE", help="The student's recipe.")] = "distil",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of it: encoder.options.dim=128"),
    ] = None,
    weight: Annotated[float, typer.Option(help="Of the teacher in the targets; 0: true labels alone.")] = 0.5,
    top: Annotated[int, typer.Option(help="Candidates of the teacher for each text.")] = 30,
    least: Annotated[float, typer.Option(help="Smallest probability of the teacher that is a target.")] = 0.4,
    label_texts: Annotated[
        bool, typer.Option("--label-texts/--no-label-texts", help="The teacher answers label texts too.")
    ] = True,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed; overrides the recipe.")] = None,
    device: DeviceOption = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run from its last checkpoint.")] = False,
    data_format: FormatOption = None,
    *,
    table: Options,
) -> None:
    """Distil a model into a student with one vector per label, which any vector engine can serve.

    The teacher is any trained model, also one that fuses several heads. It answers all train
    and label texts with calibrated probabilities, and the student learns from these beside the
    true labels. Its encoder is a bag of words that starts from the teacher's, if that has one.

    The student is a model like any other: predict, index, labels add, serve and export take it.

    Example: megalabel distil runs/first --out runs/student

    Example: megalabel distil runs/first --data pydocs --out runs/student --set encoder.options.dim=128
    """  # fmt: skip
    from megalabel.data.load import load
    from megalabel.distiller import distil as distil_model
    from megalabel.training.phase import Stopped

    dataset = None if data is None else load(data, format=data_format, options=table, say=say)
    try:
        model = distil_model(
            run, out, data=dataset, recipe=recipe, changes=changes or (), weight=weight, top=top, least=least,
            label_texts=label_texts, seed=seed, resume=resume, device=device, say=say,
        )  # fmt: skip
    except Stopped as stop:
        given = {"--recipe": recipe, "--weight": weight, "--top": top, "--least": least, "--device": device}
        given |= {"--data": data, "--seed": seed, "--from": data_format}
        command = ["megalabel", "distil", str(run), "--out", str(out)]
        command += [part for name, value in given.items() if value is not None for part in (name, str(value))]
        command += [part for change in changes or [] for part in ("--set", change)]
        command += [] if label_texts else ["--no-label-texts"]
        say(f"stopped and saved; continue with: {shlex.join([*command, *table_options(table), '--resume'])}")
        raise typer.Exit(128 + stop.number) from stop
    if dataset is not None:
        report_run(out, model, dataset)
    say(f"{out}: done; next: megalabel index {shlex.quote(str(out))}, megalabel export {shlex.quote(str(out))}")
