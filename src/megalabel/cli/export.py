"""``megalabel export``: write the dual encoder of a model for other programs, or upload the whole model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import FormatOption, say

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.integrations._export import DualTower
    from megalabel.model import Model

__all__ = ["export"]


class Target(StrEnum):
    """The program that reads the folder."""

    sentence_transformers = "sentence-transformers"
    onnx = "onnx"
    hub = "hub"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    to: Annotated[Target, typer.Option(help="Target program.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write.")] = None,
    repo: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="hub: repository to upload to.")] = None,
    private: Annotated[bool, typer.Option("--private", help="hub: only its owners see a new repository.")] = False,
    with_texts: Annotated[bool, typer.Option("--with-texts", help="hub: upload the training texts too.")] = False,
    head: Annotated[
        str | None,
        typer.Option(help="A head with kind: text or text_free; default: the first.", show_default=False),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="onnx: also write a graph with 8-bit weights; requires --data.")
    ] = False,
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="D", help="onnx: measure P@1 of the graphs on this data set.")
    ] = None,
    split: Annotated[str, typer.Option(help="Rows to measure on: test, val or train.")] = "test",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it exists.")] = False,
    data_format: FormatOption = None,
) -> None:
    """Export a model to sentence-transformers, ONNX Runtime or the Hugging Face hub.

    The hub gets the whole model with its model card, without training texts; commands take it as
    hf://OWNER/NAME. The token is that of hf auth login, or HF_TOKEN. The other targets get the
    dual encoder: the encoder and its text head, which compute the same vectors as the model. Free
    vectors, fitted heads and fusion are not exported; the last lines list what is missing. ONNX takes
    transformers only; sentence-transformers also bags: that of distil anywhere, those of auto and the
    -cpu recipes where megalabel is installed.

    Example: megalabel export runs/first --to sentence-transformers --out first-st

    Example: megalabel export runs/first --to onnx --out first-onnx --int8 --data pydocs

    Example: megalabel export runs/first --to hub --repo me/tickets --private
    """
    from megalabel.data.load import load
    from megalabel.errors import SettingError
    from megalabel.files import check_target
    from megalabel.integrations.export_onnx import export_onnx
    from megalabel.integrations.export_sentence_transformers import export_sentence_transformers
    from megalabel.model import Model

    if to is Target.hub:
        if out is not None or head is not None or int8 or data is not None:
            raise SettingError("--to hub uploads the whole model", remedy="give --repo, and neither --out nor --head")
        return _upload(run, repo, private, with_texts)
    if repo is not None or private or with_texts:
        raise SettingError("--repo, --private and --with-texts are for --to hub", remedy="drop them")
    if out is None:
        raise SettingError(f"--to {to.value} writes a folder", remedy="give --out DIR")
    if to is not Target.onnx and (int8 or data is not None):
        raise SettingError("--int8 and --data are for --to onnx", remedy="drop them")
    if int8 and data is None:
        raise SettingError("--int8 requires --data", remedy="give --data D to measure the loss of accuracy")
    check_target(out, overwrite=overwrite)
    dataset = None if data is None else load(data, format=data_format, say=say)
    if dataset is not None:
        dataset.split(split)  # a missing split is an error, before the work
    model = Model.load(run, device="cpu")
    if dataset is not None and list(dataset.labels.uids) != list(model.labels.uids):
        raise SettingError(
            f"{dataset.name} does not have the labels of this model", remedy="give the data set that it was trained on"
        )
    if to is Target.onnx:
        tower = export_onnx(model, out, head=head, int8=int8, overwrite=overwrite)
    else:
        tower = export_sentence_transformers(model, out, head=head, overwrite=overwrite)
    if dataset is not None:
        _measure(out, dataset, split)
    _tell(out, tower, model)


def _tell(out: Path, tower: DualTower, model: Model) -> None:
    """Say what was exported, what it needs, and what was not exported."""
    say(f"{out}: head {tower.name}, vectors of {tower.head.dim} dimensions, {model.state.alive:,} label texts")
    if tower.needs_us:
        say(f"for programs beside megalabel: SentenceTransformer({str(out)!r}, trust_remote_code=True)")
    if tower.left_behind:
        say(f"not exported: {', '.join(tower.left_behind)}")


def _upload(run: Path, repo: str | None, private: bool, texts: bool) -> None:
    """Upload a model, and print where it is."""
    from megalabel.errors import SettingError
    from megalabel.model import Model

    if repo is None:
        raise SettingError("--to hub uploads to a repository", remedy="give --repo OWNER/NAME")
    address = Model.load(run, device="cpu").push_to_hub(repo, private=private or None, texts=texts)
    say(f"{address}: done; next: megalabel predict hf://{repo} --text '...'")


def _measure(folder: Path, data: Dataset, split: str) -> None:
    """Print P@1 and P@5 of each graph, and the loss by 8-bit weights."""
    from megalabel.integrations.export_onnx import measure_onnx

    graphs = measure_onnx(folder, data, split)
    for name, metrics in graphs.items():
        size = (folder / name).stat().st_size / 1e6
        typer.echo(f"{name}: {size:.1f} MB, " + ", ".join(f"{key} {value:.2f}" for key, value in metrics.items()))
    if len(graphs) == 2:
        full, small = (metrics["P@1"] for metrics in graphs.values())
        typer.echo(f"8-bit weights cost {full - small:.2f} points of P@1")
