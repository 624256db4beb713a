"""``megalabel index``: build the search index of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import DeviceOption, JsonOption, SeedOption, print_json, say

if TYPE_CHECKING:
    from megalabel.index import Choice

__all__ = ["index"]


def index(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model; the command changes it.")],
    kind: Annotated[
        str,
        typer.Option(
            help="exact, hnsw, ivf, beam, or auto: the fastest on this machine; or an engine: pgvector, lancedb."
        ),
    ] = "auto",
    heads: Annotated[
        str, typer.Option(help="all (one index per head of a fused model), or the name of one head.")
    ] = "all",
    at_least: Annotated[float, typer.Option(help="Required recall, 0 to 1.")] = 0.95,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Texts to measure with, in a format of predict; training texts by default."),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "-k", help="Labels per search: 10 by default, or the candidates per head of a fused model.", min=1
        ),
    ] = None,
    searches: Annotated[int, typer.Option(help="Expected number of searches, for auto.", min=1)] = 100_000,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="hnsw, pgvector: M, ef_construction, ef_search; ivf: nlist, nprobe, pq, rerank; "
            "beam: leaf, branches, beam; lancedb: nlist, nprobe.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Engines: postgresql://HOST:PORT/DATABASE, without a password (see MEGALABEL_PG_URL), or a folder or "
            "s3://BUCKET/PATH of LanceDB."
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Engines: the name of the table; one of this model by default.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the index from the model.")] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Build a search index over the labels, measure it, and save it with the model.

    Predict, evaluate and serve then use it. Recall is the share of the best k labels of an
    exact search that the index finds.

    Example: megalabel index runs/first --kind ivf --at-least 0.99
    """
    from megalabel.model import Model
    from megalabel.model.changing import changing
    from megalabel.model.store import find_model

    texts = None if queries is None else _read(queries)
    options = {
        **_settings(settings or []),
        **({} if k is None else {"k": k}),
        "at_least": at_least,
        "searches": searches,
        "seed": seed,
        **({} if url is None else {"url": url}),
        **({} if table is None else {"table": table}),
    }
    folder = find_model(run, change=True)
    with changing(folder, say):
        model = Model.load(folder, device=device)
        shared = model.indexes.table
        if drop:
            count = model.indexes.drop()
            model.live.share(model.indexes)
        else:
            choices = model.build_index(kind, heads=heads, queries=texts, **options)
        model.save(folder, overwrite=True)
    if shared is not None and (now := model.indexes.table) is not shared and (now is None or now.place != shared.place):
        say(f"the table {shared.place} is left as it is, for others that use it")
    if drop and as_json:
        print_json({"dropped": count})
    elif drop:
        typer.echo(f"{count} dropped, search is exact")
    elif as_json:
        print_json({"index": [_document(name, choice) for name, choice in choices.items()]})
    else:
        for name, choice in choices.items():
            typer.echo(f"{name}: {choice}")


def _read(path: Path) -> list[str]:
    from megalabel.errors import DataError
    from megalabel.model.predict_input import read_texts

    texts = [text for _, text in read_texts(path)]
    if not texts:
        raise DataError("no texts in this file", path=path)
    return texts


def _settings(pairs: Sequence[str]) -> dict[str, int]:
    """Parse KEY=VALUE pairs; every setting of an index is an integer."""
    from megalabel.documents import parse_whole
    from megalabel.errors import SettingError

    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        try:
            parsed[name.strip()] = parse_whole(value.strip() if equals else "")
        except ValueError:
            raise SettingError(f"invalid index setting --set {pair:.80}", remedy="for example nprobe=16") from None
    return parsed


def _document(name: str, choice: Choice) -> dict[str, Any]:
    keys = ("kind", "k", "recall", "build_seconds", "queries_per_second", "exact_per_second", "measured_on", "why")
    measured = {key: getattr(choice, key) for key in keys}
    return {"heads": name, "labels": len(choice.index), **measured, "settings": choice.index.settings()}
