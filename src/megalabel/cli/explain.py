"""``megalabel explain``: the reasons for a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._find_label import find_label, shorten
from megalabel.cli._options import DeviceOption, JsonOption, print_json
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.model import Explanation

__all__ = ["explain"]


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    text: Annotated[str, typer.Option(help="The text.")],
    label: Annotated[
        str | None, typer.Option(help="Uid, text, part of the text or id of a label; the best one by default.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Training texts and related labels to show.", min=1)] = 5,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Explain why a label fits a text.

    Shows the score of each head, the training texts with the label that are nearest to the
    text, and labels that often occur with it.

    Example: megalabel explain runs/first --text "inverse of a square matrix"
    """
    from dataclasses import asdict

    from megalabel.model import Model

    model = Model.load(run, device=device)
    uid = None if label is None else model.labels.uids[find_label(label, model.labels, model.state.removed.tolist())]
    explanation = model.explain(text, uid, k)
    if as_json:
        print_json(asdict(explanation))
    else:
        typer.echo("\n".join(_lines(explanation)))


def _lines(why: Explanation) -> list[str]:
    probability = "" if why.probability is None else f", probability {why.probability:.3f}"
    seen = "added after training" if why.added else f"{counted(why.points, 'training point')}, {why.frequency}"
    wide = max(10, *(len(part.head) for part in why.heads))
    lines = [f"{why.label}  ({why.uid})", f"rank {why.rank}{probability}; {seen}", ""]
    if why.parents:
        lines.insert(1, f"part of {', '.join(name for _, name in why.parents)}")
    lines.append(f"{'heads':<{wide}} {'score':>7} {'adds':>9}")
    lines += [f"{part.head:<{wide}} {part.score:>7.3f} {part.adds:>+9.3f}" for part in why.heads]
    if why.rest_by is not None:
        lines.append(f"{why.rest_by:<{wide}} {'':>7} {why.rest:>+9.3f}")
    lines.append(f"{'all':<{wide}} {'':>7} {why.total:>+9.3f}")
    if not why.texts_kept:
        return [*lines, "", "this model was saved without its training texts"]
    if why.nearest:
        lines += ["", "nearest training texts with this label"]
        lines += [f"{near.similarity:>6.3f}  {shorten(near.text, 90)}" for near in why.nearest]
    if why.related:
        lines += ["", "labels that share training texts with it"]
        lines += [f"{label.share:>6.1%}  {shorten(label.text, 90)}" for label in why.related]
    return lines
