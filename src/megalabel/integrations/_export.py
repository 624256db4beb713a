"""Shared by all exports: the part of a model that other programs can run, without messages of other libraries."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import orjson
import torch

from megalabel.encoders import BagEncoder, TransformerEncoder
from megalabel.encoders._arrays import write_tensors
from megalabel.errors import SettingError, nearest
from megalabel.files import writing

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from megalabel.heads import DenseHead
    from megalabel.model import Model

__all__ = ["DualTower", "quiet"]

_RECIPES = "a recipe with encoder.kind: transformer: dexml, dexml-hnm, depsl, unidec"
VECTORS = "labels.safetensors"  # vectors of the labels of labels.jsonl.gz, in its order


@dataclass(frozen=True)
class DualTower:
    """An encoder, a head whose label vectors come from label texts, and the lengths in tokens; None: any.

    The vectors of trained labels may have learnt corrections; they are written beside the encoder then.
    """

    name: str
    encoder: TransformerEncoder | BagEncoder
    head: DenseHead
    query_length: int | None
    label_length: int | None
    parts_left: tuple[str, ...]  # parts of the model that are not exported

    @classmethod
    def of(cls, model: Model, head: str | None = None) -> DualTower:
        """Return the dual tower of a model; the first head with ``kind: text`` unless one is named.

        Without one, the first with ``kind: text_free``.
        """
        network, recipe = model.network, model.recipe
        texts = [name for name, part in recipe.heads.items() if part.text_only]
        texts += [name for name, part in recipe.heads.items() if part.corrects_text]
        if head is not None and head not in model.heads:
            raise SettingError(f"this model has no head {head!r}", remedy=nearest(head, texts or model.heads))
        if not texts or head not in (None, *texts):
            what = "this model has no head" if head is None else f"the head {head!r} is not one"
            remedy = f"choose one of: {', '.join(texts)}" if texts else "train a recipe that has one, such as dexml"
            what = f"{what} whose label vectors come from texts (kind: text, text_free)"
            raise SettingError(what, remedy=remedy)
        chosen = texts[0] if head is None else head
        name = network.query_encoder(chosen)
        encoder, settings = network.encoders[name], recipe.encoders[name]
        remedy = f"export {_RECIPES}"
        if not isinstance(encoder, TransformerEncoder | BagEncoder):
            raise SettingError(f"an encoder of kind {settings.kind} cannot be exported", remedy=remedy)
        if network.label_encoder(chosen) != name:
            raise SettingError(
                f"the head {chosen!r} has two encoders; only one can be exported", remedy=f"export {_RECIPES}"
            )
        if network.head(chosen).settings.layer is not None:
            raise SettingError(f"the head {chosen!r} reads a layer inside the encoder", remedy=remedy)
        lengths = settings.query_length or encoder.max_length, settings.label_length or encoder.max_length
        return cls(chosen, encoder, network.head(chosen), *lengths, tuple(_left_behind(model, chosen)))

    @property
    def transformer(self) -> TransformerEncoder:
        """The encoder, for programs that hashed features cannot be computed in."""
        if not isinstance(self.encoder, TransformerEncoder):
            raise SettingError(
                "a bag encoder has features that no standard graph computes",
                remedy=f"export --to sentence-transformers, or {_RECIPES}",
            )
        return self.encoder

    @property
    def static(self) -> bool:
        """Whether a table of word vectors says what the encoder does, on texts of known words.

        That holds for a bag whose features do not depend on neighbouring words, if nothing reads the length of its
        vectors and no text is cut off.
        """
        bag, head = self.encoder, self.head
        if not isinstance(bag, BagEncoder) or bag.bigrams or bag.activation != "none" or not head.search_normalise:
            return False
        return head.settings.projection == "none" and self.query_length is None and self.label_length is None

    @property
    def left_behind(self) -> list[str]:
        """What is not exported."""
        unknown = ["words that are not in the training texts, but for their subwords"] if self.static else []
        return [*self.parts_left, *unknown]

    @property
    def needs_us(self) -> bool:
        """Whether this package must be installed where the export is used: most bags are one of its modules."""
        return isinstance(self.encoder, BagEncoder) and not self.static

    @property
    def tied(self) -> bool:
        """Whether queries and labels are encoded in the same way."""
        return self.head.query_matrix is None and self.query_length == self.label_length

    def write_about(self, folder: Path, model: Model, **more: object) -> None:
        """Write export.json, which describes the folder, and labels.jsonl.gz (uid, text), and learnt label vectors."""
        about = {
            "head": self.name,
            "dim": self.head.dim,
            "query_length": self.query_length,
            "label_length": self.label_length,
            "normalised": self.head.search_normalise,
            "needs": ["megalabel"] if self.needs_us else [],
            "left_behind": self.left_behind,
            **more,
        }
        with writing(folder / "export.json") as out:
            out.write(orjson.dumps(about, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        state = model.state
        removed = set(state.removed.tolist())
        with writing(folder / "labels.jsonl.gz") as out:
            for label, (uid, text) in enumerate(zip(state.labels.uids, state.labels.texts, strict=True)):
                if label not in removed:
                    out.write(orjson.dumps({"uid": uid, "text": text}, option=orjson.OPT_APPEND_NEWLINE))
        if self.head.settings.corrects_text:
            alive = np.setdiff1d(np.arange(len(state.labels)), state.removed)
            write_tensors(folder / VECTORS, {"vectors": _label_vectors(model, self.name)[alive]})


def _label_vectors(model: Model, name: str) -> Tensor:
    """Return the vectors [L, d] of all labels by a head, those added or renamed after training among them."""
    state, trained = model.state, model.label_side()[name].vectors.cpu()
    vectors = torch.zeros(len(state.labels), trained.shape[1])
    vectors[: len(trained)] = trained
    if len(state.rows):
        vectors[torch.from_numpy(state.rows.ids)] = state.folded({name: 1.0})[:, : trained.shape[1]].cpu()
    return vectors


def _left_behind(model: Model, chosen: str) -> list[str]:
    """List the parts of the model that are not exported."""
    parts = [f"head {name} ({part.kind})" for name, part in model.recipe.heads.items() if name != chosen]
    if model.network.head(chosen).bias is not None:
        parts.append(f"bias of head {chosen}")
    if model.fusion is not None:
        parts.append("fusion")
    return parts


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings, log messages and progress bars of other libraries."""
    from transformers.utils import logging as hf_logging

    level, bars = logging.root.manager.disable, hf_logging.is_progress_bar_enabled()
    logging.disable(logging.WARNING)
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        if bars:
            hf_logging.enable_progress_bar()
