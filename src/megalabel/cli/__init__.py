"""The command line. Commands are thin: they read options, call the library and print."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from megalabel.cli.cache import app as cache_app
from megalabel.cli.compare import compare
from megalabel.cli.data import app as data_app
from megalabel.cli.demo import demo
from megalabel.cli.distil import distil
from megalabel.cli.evaluate import evaluate
from megalabel.cli.explain import explain
from megalabel.cli.export import export
from megalabel.cli.graph import graph
from megalabel.cli.import_model import app as import_app
from megalabel.cli.index import index
from megalabel.cli.labels import app as labels_app
from megalabel.cli.plan import plan
from megalabel.cli.predict import predict
from megalabel.cli.recipes import recipes, show
from megalabel.cli.reproduce import reproduce
from megalabel.cli.serve import serve
from megalabel.cli.train import train
from megalabel.cli.tune import tune
from megalabel.cli.update import update

__all__ = ["app"]

app = typer.Typer(
    name="megalabel",
    help=(
        "Train, evaluate and serve text classifiers with thousands to millions of labels.\n\n"
        "First steps: megalabel demo. Then: megalabel train auto --data D --out RUN, "
        "megalabel evaluate RUN --data D, megalabel serve RUN."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        from megalabel import __version__

        typer.echo(f"megalabel {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _join_lines(group: typer.Typer) -> None:
    """Let the help of all commands wrap where the terminal ends, not where lines of source end."""
    for command in group.registered_commands:
        if command.callback is not None:
            paragraphs = (command.help or inspect.getdoc(command.callback) or "").split("\n\n")
            command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _join_lines(inner.typer_instance)


# Groups of `megalabel --help`, in the order of a project.
_START, _DATA, _TRAIN, _USE, _SHARE = (
    "Start here",
    "Look at data and recipes",
    "Train and evaluate",
    "Use and change a model",
    "Other programs",
)
app.command(rich_help_panel=_START)(demo)
app.add_typer(data_app, name="data", rich_help_panel=_DATA)
app.command(rich_help_panel=_DATA)(recipes)
app.command(rich_help_panel=_DATA)(show)
app.command(rich_help_panel=_DATA)(graph)
app.add_typer(cache_app, name="cache", rich_help_panel=_DATA)
app.command(rich_help_panel=_TRAIN)(plan)
app.command(rich_help_panel=_TRAIN)(train)
app.command(rich_help_panel=_TRAIN)(tune)
app.command(rich_help_panel=_TRAIN)(evaluate)
app.command(rich_help_panel=_TRAIN)(compare)
app.command(rich_help_panel=_TRAIN)(reproduce)
app.command(rich_help_panel=_USE)(predict)
app.command(rich_help_panel=_USE)(explain)
app.add_typer(labels_app, name="labels", rich_help_panel=_USE)
app.command(rich_help_panel=_USE)(update)
app.command(rich_help_panel=_USE)(distil)
app.command(rich_help_panel=_USE)(index)
app.command(rich_help_panel=_USE)(serve)
app.command(rich_help_panel=_SHARE)(export)
app.add_typer(import_app, name="import", rich_help_panel=_SHARE)
_join_lines(app)
