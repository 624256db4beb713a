"""``megalabel index``: how the labels of a trained model are searched."""

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
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model; it is changed.")],
    kind: Annotated[str, typer.Option(help="exact, hnsw, ivf, or auto: what is quicker on this machine.")] = "auto",
    heads: Annotated[
        str, typer.Option(help="all (of a fused model one index each), or one head by name (dual, classifier).")
    ] = "all",
    at_least: Annotated[float, typer.Option(help="Recall that is asked for, 0 to 1.")] = 0.95,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Texts to measure with, as for predict; else those of the training."),
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", help="Labels asked for; 10, or what a fused model asks of a head.", min=1)
    ] = None,
    searches: Annotated[int, typer.Option(help="Searches expected, for auto.", min=1)] = 100_000,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="M, ef_construction, ef_search; nlist, nprobe, pq, rerank."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Take the index out of the model instead.")] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Build what labels are searched with, measure it, and save it with the model.

    Predict, evaluate and serve use it from then on. Recall is the share of the best k labels of an
    exact search that are found.

    Example: megalabel index runs/first --kind ivf --at-least 0.99
    """
    from megalabel.model import Model
    from megalabel.model.changing import changing
    from megalabel.model.store import find_model

    given = {} if k is None else {"k": k}
    asked = None if queries is None else _read(queries)
    more = {**_settings(settings or []), **given, "at_least": at_least, "searches": searches, "seed": seed}
    place = find_model(run)
    with changing(place, say):
        model = Model.load(place, device=device)
        if drop:
            count = model.indexes.drop()
        else:
            found = model.build_index(kind, heads=heads, queries=asked, **more)
        model.save(place, overwrite=True)
    if drop and as_json:
        print_json({"dropped": count})
    elif drop:
        typer.echo(f"{count} dropped, search is exact")
    elif as_json:
        print_json({"index": [_document(name, choice) for name, choice in found.items()]})
    else:
        for name, choice in found.items():
            typer.echo(f"{name}: {choice}")


def _read(path: Path) -> list[str]:
    from megalabel.errors import DataError
    from megalabel.model.predict_file import read_texts

    found = [text for _, text in read_texts(path)]
    if not found:
        raise DataError("there are no texts in this file", path=path)
    return found


def _settings(pairs: Sequence[str]) -> dict[str, int]:
    """Return what KEY=VALUE pairs say; every setting of an index is a whole number."""
    from megalabel.errors import SettingError

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not value.strip().isdecimal():
            raise SettingError(f"--set {pair} is no setting of an index", remedy="for example --set nprobe=16")
        found[name.strip()] = int(value)
    return found


def _document(name: str, choice: Choice) -> dict[str, Any]:
    names = ("kind", "k", "recall", "build_seconds", "queries_per_second", "exact_per_second", "measured_on", "why")
    settings = choice.index.settings()
    return {"heads": name, "labels": len(choice.index), **{key: getattr(choice, key) for key in names}} | {
        "settings": settings
    }
