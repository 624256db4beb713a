"""``megalabel cache``: show and clear the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from megalabel.cli._options import JsonOption, print_json
from megalabel.wording import counted

__all__ = ["app"]

app = typer.Typer(help="Show or clear the cache of tokens, built-in sets and mapped data.", no_args_is_help=True)


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Show where the cache is, what it holds, and its limit.

    The longest unused entries go when it would grow beyond its limit: 10 GB, or MEGALABEL_CACHE_LIMIT, in GB.
    MEGALABEL_CACHE names another folder.

    Example: megalabel cache info
    """
    from megalabel.data.cache import cache_entries, cache_folder, cache_limit

    kinds = {kind: [entry.size for entry in entries] for kind, entries in cache_entries().items()}
    if as_json:
        sizes = {kind: {"entries": len(found), "bytes": sum(found)} for kind, found in kinds.items()}
        print_json({"folder": cache_folder(), "limit_bytes": cache_limit(), **sizes})
        return
    typer.echo(f"folder  {cache_folder()}")
    for kind, found in kinds.items():
        entries = counted(len(found), "entry", "entries")
        typer.echo(f"{kind:<6}  {entries}, {sum(found) / 1e6:,.1f} MB")
    typer.echo(f"limit   {cache_limit() / 1e9:g} GB")


@app.command()
def clear(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="tokens, data or mapped; all by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what the cache holds and no process uses; it is made again when it is needed.

    Example: megalabel cache clear tokens
    """
    from megalabel.data.cache import cache_entries, clear_cache

    entries, freed = clear_cache(kind)
    left = sum(len(found) for name, found in cache_entries().items() if kind in (None, name))
    if as_json:
        print_json({"entries": entries, "bytes": freed, "left": left})
        return
    typer.echo(f"{counted(entries, 'entry', 'entries')} removed, {freed / 1e6:,.1f} MB")
    if left:
        typer.echo(f"{counted(left, 'entry', 'entries')} left: in use, or not yours to remove")
