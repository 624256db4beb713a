"""``megalabel predict``: labels for texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli._options import DeviceOption, HeadsOption, JsonOption, TailOption, print_json, say

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    text: Annotated[list[str] | None, typer.Option(help="A text; may be given several times.")] = None,
    source: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="A file with one text a line.")] = None,
    k: Annotated[int, typer.Option("-k", help="Labels for each text.", min=1)] = 5,
    heads: HeadsOption = "all",
    tail: TailOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Print the best labels of one or more texts.

    Example: megalabel predict runs/first --text "inverse of a square matrix"
    """
    from megalabel.errors import SettingError
    from megalabel.files import decode, read_lines
    from megalabel.model import Model

    texts = list(text or [])
    if source is not None:
        texts += [decode(line, source, number) for number, line in read_lines(source)]
    if not texts:
        raise SettingError("there is nothing to predict", remedy="give --text or --input")
    model = Model.load(run, tail=tail, device=device)
    if k > len(model.labels):
        say(f"the model has {len(model.labels):,} labels, so -k {k:,} gives all of them")
    found = model.predict(texts, k, heads=heads)
    if as_json:
        rows = [[{"id": p.id, "uid": p.uid, "text": p.text, "score": p.score} for p in row] for row in found]
        print_json({"predictions": rows})
        return
    for asked, row in zip(texts, found, strict=True):
        typer.echo(asked)
        for prediction in row:
            typer.echo(f"  {prediction.score:.3f}  {prediction.text}")
