"""The part of a model that other programs can run: a transformer and one head that encodes labels by their texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from megalabel.encoders import TransformerEncoder
from megalabel.errors import SettingError, nearest
from megalabel.files import writing

if TYPE_CHECKING:
    from pathlib import Path

    from megalabel.heads import DenseHead
    from megalabel.model import Model

__all__ = ["DualTower"]

_RECIPES = "recipes with encoder.kind: transformer can be exported: dexml, dexml-hnm, depsl, unidec and their like"


@dataclass(frozen=True)
class DualTower:
    """An encoder, a head whose label vectors come from label texts alone, and their lengths in tokens."""

    name: str
    encoder: TransformerEncoder
    head: DenseHead
    query_length: int
    label_length: int
    left: list[str]  # what the model has and the tower has not

    @classmethod
    def of(cls, model: Model, head: str | None = None) -> DualTower:
        """Return the dual tower of a model; the first head with ``kind: text`` unless one is named."""
        network = model.network
        encoder, settings = network.encoder, model.recipe
        if not isinstance(encoder, TransformerEncoder):
            raise SettingError(
                f"a {settings.encoder.kind} encoder has features that no standard module holds", remedy=_RECIPES
            )
        texts = [name for name, part in settings.heads.items() if part.reads_text and not part.has_table]
        if head is not None and head not in model.heads:
            raise SettingError(f"this model has no head {head!r}", remedy=nearest(head, texts or model.heads))
        if not texts or head not in (None, *texts):
            what = "this model has no head" if head is None else f"the head {head!r} is not one"
            remedy = f"choose one of: {', '.join(texts)}" if texts else "train a recipe that has one, such as dexml"
            raise SettingError(f"{what} whose label vectors come from texts alone (kind: text)", remedy=remedy)
        chosen = texts[0] if head is None else head
        return cls(
            chosen,
            encoder,
            network.head(chosen),
            settings.encoder.query_length or encoder.max_length,
            settings.encoder.label_length or encoder.max_length,
            _left(model, chosen),
        )

    @property
    def tied(self) -> bool:
        """Whether queries and labels are encoded alike."""
        return self.head.query_matrix is None and self.query_length == self.label_length

    def write_about(self, folder: Path, model: Model, **more: object) -> None:
        """Write what the folder holds (export.json) and the labels (labels.jsonl.gz: uid, text)."""
        about = {
            "head": self.name,
            "dim": self.head.dim,
            "query_length": self.query_length,
            "label_length": self.label_length,
            "normalised": self.head.search_normalise,
            "left_behind": self.left,
            **more,
        }
        with writing(folder / "export.json") as out:
            out.write(orjson.dumps(about, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        state = model.state
        gone = set(state.removed.tolist())
        with writing(folder / "labels.jsonl.gz") as out:
            for label, (uid, text) in enumerate(zip(state.labels.uids, state.labels.texts, strict=True)):
                if label in gone:
                    continue
                out.write(orjson.dumps({"uid": uid, "text": text}, option=orjson.OPT_APPEND_NEWLINE))


def _left(model: Model, chosen: str) -> list[str]:
    """Say what of the model stays behind."""
    left = [f"head {name} ({part.kind})" for name, part in model.recipe.heads.items() if name != chosen]
    if model.network.head(chosen).bias is not None:
        left.append(f"bias of head {chosen}")
    if model.fusion is not None:
        left.append("fusion")
    return left
