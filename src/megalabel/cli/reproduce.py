"""``megalabel reproduce``: the published setting of a recipe on an official set, ours beside theirs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import FormatOption, JsonOption, OwnDeviceOption, print_json, say

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
        str | None, typer.Option("--as", metavar="NAME", help="Which official set it is, if its sizes do not tell.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder of the run; runs/RECIPE-NAME if not given.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the published setting.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the recipe's seed.")] = None,
    device: OwnDeviceOption = None,
    dry: Annotated[bool, typer.Option("--dry", help="Print setting, published figures and cost, and stop.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Run even if data or machine speak against it.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in RUN stopped.")] = False,
    data_format: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe in its published setting on an official data set, and print ours beside theirs.

    The folder holds the files of the extreme classification repository (trn.json.gz,
    tst.json.gz, lbl.json.gz and the two filter files) or of the DEXML code. Which set it is
    shows in its sizes. A metric is OK within half a point of the published figure or above
    it, close within two, off beyond.

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
    plan = plan_reproduction(recipe, official, dataset, changes=changes or [], seed=seed, device=device)
    if dry:
        print_json(plan.to_dict()) if as_json else _explain(plan)
        return
    if plan.problems and not anyway:
        raise SettingError("; ".join(plan.problems), remedy="--anyway goes on, --dry shows what would be run")
    for problem in plan.problems:
        say(f"mind: {problem}")
    assert dataset is not None
    folder = out or Path("runs") / f"{plan.recipe.name}-{official.name}"
    try:
        result = run(plan, dataset, folder, resume=resume, say=say)
    except Stopped:
        say(f"stopped, and saved; give the same command again with --out {shlex.quote(str(folder))} --resume")
        raise
    print_json(result.to_dict()) if as_json else _show(result)


def _load(source: str, data_format: str | None, named: OfficialSet | None) -> Dataset:
    """Read the set; a given name decides whether only titles are read."""
    from megalabel.data.formats import Options
    from megalabel.data.load import load

    options = Options() if named is None else Options(fields=named.fields)
    return load(source, format=data_format, options=options, say=say)


def _explain(plan: ReproductionPlan) -> None:
    """Print what would be run."""
    from megalabel.recipes.load_recipe import dump_recipe
    from megalabel.report.reproduce import RULE
    from megalabel.report.reproduction_plan import cores

    official, published, cost = plan.official, plan.published, plan.cost
    typer.echo(f"{plan.recipe.name} on {official.name} ({official.size})")
    typer.echo(
        f"files: {', '.join(official.files)}, from {official.source}; another layout that is read will do as well"
    )
    if published is None:
        typer.echo("published: nothing")
    else:
        figures = ", ".join(f"{name} {value:.2f}" for name, value in published.metrics.items())
        typer.echo(f"published: {figures} ({published.source})")
        for title, text in (("theirs took", published.cost), ("left open", published.remark)):
            if text:
                typer.echo(f"{title}: {text}")
    typer.echo(f"setting: {plan.recipe.name} with {', '.join(plan.settings)}")
    typer.echo(
        f"ours takes: {cost.steps:,} steps, {cost.texts:,.0f} texts encoded, {cost.label_bytes / 2**30:,.2f} GiB of "
        f"label vectors and gradients in a step; about {_time(cost.hours(cores()))} on {cores()} CPU cores"
    )
    typer.echo(f"device: {plan.device}" + ("" if plan.device == "cpu" else ", on which the time is not estimated"))
    for problem in plan.problems:
        typer.echo(f"against it: {problem}")
    typer.echo(f"{RULE}\n\n{dump_recipe(plan.recipe)}", nl=False)


def _show(result: Reproduction) -> None:
    """Print ours beside theirs."""
    from megalabel.report.reproduce import RULE

    plan, (a, b) = result.plan, result.propensity
    typer.echo(f"{plan.recipe.name} on {plan.official.name}, test rows, seed {plan.recipe.seed}, A {a:g}, B {b:g}\n")
    typer.echo(result.table().text())
    if plan.published is not None:
        typer.echo(f"\nin all: {result.verdict} ({RULE})\ntheirs: {plan.published.source}")
    if plan.changes:
        typer.echo(f"ours differs from the published setting: {', '.join(plan.changes)}")


def _time(hours: float) -> str:
    """Return hours, or days from two days on."""
    return f"{hours:,.1f} hours" if hours < 48 else f"{hours / 24:,.0f} days"
