"""The command line. Commands stay thin: they read options, call the library and print."""

from __future__ import annotations

from typing import Annotated

import typer

from megalabel.cli.compare import compare
from megalabel.cli.data import app as data_app
from megalabel.cli.demo import demo
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

__all__ = ["app"]

app = typer.Typer(
    name="megalabel",
    help="Find the right handful out of thousands to millions of labels for a text.\n\nStart with: megalabel demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
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


app.command()(demo)
app.add_typer(data_app, name="data")
app.command()(recipes)
app.command()(show)
app.command()(plan)
app.command()(train)
app.command()(evaluate)
app.command()(compare)
app.command()(reproduce)
app.command()(predict)
app.command()(explain)
app.add_typer(labels_app, name="labels")
app.command()(index)
app.command()(serve)
app.command()(graph)
app.command()(export)
app.add_typer(import_app, name="import")
