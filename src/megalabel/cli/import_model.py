"""``megalabel import``: read models trained by other programs, or kept on the Hugging Face hub."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli._options import DataOption, FormatOption, say
from megalabel.wording import counted

__all__ = ["app"]

app = typer.Typer(help="Import models trained by other programs, or from the hub.", no_args_is_help=True)


class Pooling(StrEnum):
    """How token vectors are pooled."""

    cls = "cls"
    mean = "mean"
    lightxml = "lightxml"


@app.callback()
def _main() -> None:
    pass


@app.command()
def dexml(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A file model.pt, or a model folder.")],
    data: DataOption,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the model to.")],
    base: Annotated[
        str | None, typer.Option(help="Folder or name of the pretrained model, for its config and tokenizer.")
    ] = None,
    pooling: Annotated[Pooling | None, typer.Option(help="tf_pooler of the DEXML run.")] = None,
    max_length: Annotated[int | None, typer.Option(help="tf_max_len of the DEXML run.", min=3)] = None,
    normalise: Annotated[
        bool | None, typer.Option("--normalise/--no-normalise", help="norm_embs of the DEXML run.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it exists.")] = False,
    data_format: FormatOption = None,
) -> None:
    """Import a checkpoint of the DEXML code.

    The result works with predict, evaluate and export like any other model. Missing settings
    come from config.yaml beside the checkpoint, else from the released configuration for the
    data set. Pickled code is refused.

    Example: megalabel import dexml Results/DEXML/EURLex-4K/run/model.pt --data Datasets/EURLex-4K --out eurlex
    """
    from megalabel.data.load import load
    from megalabel.files import check_target
    from megalabel.integrations.import_dexml import import_dexml

    check_target(out, overwrite=overwrite)
    dataset = load(data, format=data_format, say=say)
    model = import_dexml(
        checkpoint,
        dataset,
        base=base,
        pooling=None if pooling is None else pooling.value,
        max_length=max_length,
        normalise=normalise,
    )
    model.save(out, overwrite=overwrite)
    recipe = model.recipe
    settings = f"{recipe.encoder.options.model_dump()['pooling']} pooling, {recipe.encoder.query_length} tokens"
    unit = "unit length" if recipe.dense_heads["dual"].normalise else "any length"
    say(f"{out}: {counted(len(model.labels), 'label')}, {settings}, vectors of {unit}")


@app.command()
def hub(
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository on the Hugging Face hub.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the model to.")],
    revision: Annotated[str | None, typer.Option(help="A branch, tag or commit.", show_default=False)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it exists.")] = False,
) -> None:
    """Fetch a model from the Hugging Face hub into a folder of your own.

    Only to use a model, no folder is needed: commands take hf://OWNER/NAME for RUN. A private model
    needs the token of hf auth login, or HF_TOKEN.

    Example: megalabel import hub me/tickets --out tickets
    """
    from megalabel.files import check_target
    from megalabel.model import Model

    check_target(out, overwrite=overwrite)
    model = Model.from_pretrained(f"hf://{repo.removeprefix('hf://')}", revision=revision, device="cpu")
    model.save(out, overwrite=overwrite)
    say(f"{out}: {counted(model.state.alive, 'label')}; next: megalabel predict {out} --text '...'")
