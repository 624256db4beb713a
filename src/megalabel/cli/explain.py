"""``megalabel explain``: why a label fits a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._find_label import find_label, shorten
from megalabel.cli._options import DeviceOption, JsonOption, print_json

if TYPE_CHECKING:
    from megalabel.model import Explanation

__all__ = ["explain"]


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    text: Annotated[str, typer.Option(help="The text.")],
    label: Annotated[
        str | None, typer.Option(help="Uid, text, part of the text or number of a label; the best if left out.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Training texts and related labels to show.", min=1)] = 5,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Say why a label fits a text: heads, training texts with the label, labels seen with it.

    Example: megalabel explain runs/first --text "inverse of a square matrix"
    """
    from dataclasses import asdict

    from megalabel.model import Model

    model = Model.load(run, device=device)
    uid = None if label is None else model.labels.uids[find_label(label, model.labels)]
    found = model.explain(text, uid, k)
    if as_json:
        print_json(asdict(found))
    else:
        typer.echo("\n".join(_lines(found)))


def _lines(found: Explanation) -> list[str]:
    chance = "" if found.probability is None else f", probability {found.probability:.3f}"
    seen = "added after training" if found.added else f"{found.points:,} training points, {found.frequency}"
    lines = [f"{found.label}  ({found.uid})", f"rank {found.rank}{chance}; {seen}", "", "heads        score      adds"]
    lines += [f"{part.head:<10} {part.score:>7.3f} {part.adds:>+9.3f}" for part in found.heads]
    if found.probability is not None:
        lines.append(f"{'frequency':<10} {'':>7} {found.rest:>+9.3f}")
    lines.append(f"{'all':<10} {'':>7} {found.total:>+9.3f}")
    if not found.texts_kept:
        return [*lines, "", "training texts were not kept with this model"]
    if found.nearest:
        lines += ["", "nearest training texts with this label"]
        lines += [f"{near.similarity:>6.3f}  {shorten(near.text, 90)}" for near in found.nearest]
    if found.related:
        lines += ["", "labels that training texts carry with it"]
        lines += [f"{one.share:>6.1%}  {shorten(one.text, 90)}" for one in found.related]
    return lines
