"""``megalabel reproduce``: the published setting of a recipe on an official set, ours beside theirs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import FormatOption, JsonOption, OwnDeviceOption, print_json, say
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.data.official_sets import OfficialSet
    from megalabel.report.reproduce import Reproduction
    from megalabel.report.reproduction_plan import ReproductionPlan

__all__ = ["reproduce"]


def reproduce(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe with published figures, such as dexml.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="OFFICIAL", help="Folder of the official data set.")
    ] = None,
    known_as: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Name of the official set, if its sizes are ambiguous.")
    ] = None,
    variant: Annotated[
        str, typer.Option(metavar="NAME", help="A variant with figures of its own; `megalabel show RECIPE` lists them.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder of the run; runs/RECIPE-NAME by default.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a published setting: training.epochs=10"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed; overrides the recipe.")] = None,
    device: OwnDeviceOption = None,
    dry: Annotated[bool, typer.Option("--dry", help="Print settings, published figures and cost, and stop.")] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Run even if the data differs from the official set, or the run takes more than a day."
        ),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in RUN from its last checkpoint.")] = False,
    data_format: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe with its published settings on an official data set, and compare the figures.

    The folder holds the files of the extreme classification repository (trn.json.gz,
    tst.json.gz, lbl.json.gz and the two filter files) or of the DEXML code. The set is
    detected from its sizes. A metric is OK if it is at most half a point below the published
    figure, close if at most two points below, else off.

    Example: megalabel reproduce dexml --data LF-AmazonTitles-131K

    Example: megalabel reproduce unidec --as LF-AmazonTitles-1.3M --dry
    """
    from megalabel.data.official_sets import find_official_set
    from megalabel.device import find_device
    from megalabel.errors import SettingError
    from megalabel.recipes.load_recipe import load_recipe
    from megalabel.report.reproduce import reproduce as run
    from megalabel.report.reproduction_plan import official_set, plan_reproduction
    from megalabel.training.phase import Stopped

    find_device(device or "auto")
    load_recipe(recipe, changes or [])  # report a mistake before the data is read
    named = None if known_as is None else find_official_set(known_as)
    if data is None and (named is None or not dry):
        raise SettingError(
            "--data is missing", remedy="give the folder of the official set; --as NAME --dry needs none"
        )
    dataset = None if data is None else _load(data, data_format, named)
    official = named if dataset is None else official_set(dataset, named)
    assert official is not None
    plan = plan_reproduction(
        recipe, official, dataset, variant=variant, changes=changes or [], seed=seed, device=device
    )
    if dry:
        print_json(plan.to_dict()) if as_json else _explain(plan)
        return
    if plan.problems and not anyway:
        raise SettingError("; ".join(plan.problems), remedy="--anyway runs it, --dry shows what would run")
    for problem in plan.problems:
        say(f"warning: {problem}")
    assert dataset is not None
    named_as = [plan.recipe.name, official.name, *variant.replace(",", "").split()]
    folder = out or Path("runs") / "-".join(named_as)
    try:
        result = run(plan, dataset, folder, resume=resume, say=say)
    except Stopped as stop:
        say(f"stopped and saved; continue with the same command and --out {shlex.quote(str(folder))} --resume")
        raise typer.Exit(128 + stop.number) from stop
    print_json(result.to_dict()) if as_json else _show(result)


def _load(source: str, data_format: str | None, named: OfficialSet | None) -> Dataset:
    """Read the set; a given name decides whether only titles are read."""
    from megalabel.data.formats import Options
    from megalabel.data.load import load

    options = Options() if named is None else Options(fields=named.fields)
    return load(source, format=data_format, options=options, say=say)


def _explain(plan: ReproductionPlan) -> None:
    """Print what would run."""
    from megalabel.plan.numbers import show_bytes, show_count, show_seconds
    from megalabel.recipes.load_recipe import dump_recipe
    from megalabel.report.reproduce import RULE
    from megalabel.report.reproduction_plan import cores

    official, published, cost = plan.official, plan.published, plan.cost
    typer.echo(f"{plan.recipe.name} on {official.name} ({official.size})")
    typer.echo(f"files: {', '.join(official.files)}, from {official.source}; other supported layouts work too")
    if published is None:
        typer.echo("published: no figures for this set")
    else:
        figures = ", ".join(f"{name} {value:.2f}" for name, value in published.metrics.items())
        typer.echo(f"published: {figures or 'a setting without figures'} ({published.source})")
        for title, text in (("their hardware, time", published.cost), ("left open", published.remark)):
            if text:
                typer.echo(f"{title}: {text}")
    typer.echo(f"settings: {plan.recipe.name} with {', '.join(plan.settings)}")
    if cost is None or plan.cpu_hours is None:
        typer.echo("our cost: unknown, since the size of an encoder is unknown")
    else:
        typer.echo(
            f"our cost: {counted(cost.total_steps, 'step')}, {counted(cost.total_texts, 'text')} encoded, "
            f"{show_bytes(cost.device_bytes)} of memory; at least {show_seconds(3600 * plan.cpu_hours)} on {cores()} "
            f"CPU cores ({show_count(plan.cpu_flops)}FLOP/s)"
        )
    typer.echo(f"device: {plan.device}" + ("" if plan.device == "cpu" else " (time not estimated)"))
    for problem in plan.problems:
        typer.echo(f"problem: {problem}")
    typer.echo(f"{RULE}\n\n{dump_recipe(plan.recipe)}", nl=False)


def _show(result: Reproduction) -> None:
    """Print our figures beside the published ones."""
    from megalabel.report.reproduce import RULE

    plan, (a, b) = result.plan, result.propensity
    typer.echo(f"{plan.recipe.name} on {plan.official.name}, test rows, seed {plan.recipe.seed}, A {a:g}, B {b:g}\n")
    typer.echo(result.table().text())
    if plan.published is not None and result.theirs:
        typer.echo(f"\noverall: {result.verdict} ({RULE})\ntheirs: {plan.published.source}")
    if plan.changes:
        typer.echo(f"changed settings: {', '.join(plan.changes)}")
