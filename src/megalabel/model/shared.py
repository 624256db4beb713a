"""Labels that several processes share: an engine holds them, and every change goes there first."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.errors import DataError
from megalabel.index.choose_index import Choice, measure_engine, plain_choice
from megalabel.index.engines import EngineIndex, LabelRow, LabelTable, NewTable, all_settings, new_table
from megalabel.network.vectors import fold_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.model.journal import Change
    from megalabel.model.labels import LabelState, LiveLabels
    from megalabel.model.model import Model

__all__ = ["SharedLabels", "build_engine_indexes"]


class SharedLabels:
    """Binds the labels of a model to the table of its index: other processes see its changes, and it sees theirs.

    The table is what counts. Each label there knows the number of its last change; the labels of a model follow by
    making the later changes again, which computes the same vectors from the same texts.

    Args:
        table: the table.
        columns: weights of the heads whose vectors each column holds.
    """

    def __init__(self, table: LabelTable, columns: Mapping[str, Mapping[str, float]]) -> None:
        self.table, self.columns = table, columns

    def is_ahead(self, state: LabelState) -> bool:
        """Return whether others have changed labels since this state; one short query."""
        return self.table.sequence() != state.sequence

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep other processes from changing labels."""
        with self.table.changing():
            yield

    def catch_up(self, live: LiveLabels) -> None:
        """Make the changes of others; the caller keeps this process from making any meanwhile."""
        state, sequence = live.state, self.table.sequence()
        where = self.table.place
        card = self.table.check(self.table.exists())
        if state.sequence > sequence:
            what = f"this model has label changes that the table {where} lacks"
            raise DataError(what, remedy="build the index again")
        if state.sequence < card.base:
            what = f"the table {where} was written from a later version of this model"
            raise DataError(what, remedy="copy the model again, or build the index again")
        if state.sequence == sequence and self.table.size:
            return
        live.take(self.table.changes(state.sequence), sequence)
        self.table.note()
        if self.table.size != len(live.state.labels):
            what = f"the table {where} has {self.table.size:,} labels, the model {len(live.state.labels):,}"
            raise DataError(what, remedy="build the index again")

    def write(self, state: LabelState, change: Change) -> None:
        """Write a change to the table before it is applied; ``state`` is the one after it."""
        sequence, values = state.sequence, change.values
        if change.kind == "remove":
            gone = set(values["uids"])
            ids = [label for label in state.removed.tolist() if state.labels.uids[label] in gone]
            self.table.remove(sequence, ids)
        else:
            uids = {values["uid"]} if change.kind == "rename" else set(values["uids"])
            places = [place for place, label in enumerate(state.rows.ids) if state.labels.uids[label] in uids]
            ids = state.rows.ids[places].tolist()
            rows = [LabelRow(label, state.labels.uids[label], state.labels.texts[label]) for label in ids]
            vectors = {name: _rows(state.folded(weights)[places]) for name, weights in self.columns.items()}
            self.table.put(sequence, rows, vectors)
        self.table.note()


def build_engine_indexes(
    model: Model,
    kind: str,
    wanted: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, Tensor | None],
    *,
    url: str | None,
    table: str | None,
    k: int,
    seed: int,
    at_least: float = 0.95,
    searches: int = 1,
    **settings: int,
) -> dict[str, Choice]:
    """Write the labels of a model into a table of an engine, and measure how it searches them.

    Args:
        model: the model; changes of its labels that are in the table already are made first.
        kind: pgvector or lancedb.
        wanted: by name, the weights of the heads of each index.
        queries: by name, query vectors to measure with.
        url: where the engine is.
        table: the name of the table; by default one of this model.
        k: labels per query.
        seed: chooses queries.
        at_least: the recall to reach.
        searches: has no effect.
        settings: of the kind.
    """
    known = model.indexes.table
    mark = known.model if known is not None and known.model is not None else fingerprint(model)
    target = new_table(kind, url, table or f"megalabel_{mark[:12]}")
    if (card := target.exists()) is not None:
        target.model = mark
        target.check(card)
        if model.state.sequence < target.sequence():
            model.live.take(target.changes(model.state.sequence), target.sequence())
    state, side = model.state, model.label_side()
    columns = {f"v{number}": dict(weights) for number, weights in enumerate(wanted.values())}
    vectors = {name: _all_rows(state, fold_labels(side, weights)[0], weights) for name, weights in columns.items()}
    options = all_settings(kind, len(state.labels), settings)
    start = time.perf_counter()
    target.create(NewTable(mark, state.sequence, _label_rows(state), vectors, _changed(state), options))
    seconds = time.perf_counter() - start
    choices = {}
    for (name, asked), column in zip(queries.items(), columns, strict=True):
        plain, sample = plain_choice(torch.from_numpy(vectors[column]), asked, k, seed, state.removed.tolist())
        index = EngineIndex(target, column, options)
        choices[name] = measure_engine(index, plain, sample, at_least, settings, seconds)
    return choices


def fingerprint(model: Model) -> str:
    """Return a hash of what the model was trained to be: recipe, weights, and uids of its labels."""
    from megalabel.recipes.load_recipe import dump_recipe

    digest = hashlib.blake2b(dump_recipe(model.recipe).encode(), digest_size=16)
    tensors = {**model.network.state_dict(), **model.network.stored_heads()}
    for name, value in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().data if value.ndim else b"")
    for uid in model.labels.uids[: model.state.first]:
        digest.update(uid.encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()


def _label_rows(state: LabelState) -> list[LabelRow]:
    gone = np.zeros(len(state.labels), dtype=np.bool_)
    gone[state.removed] = True
    columns = state.labels.uids, state.labels.texts, gone.tolist()
    return [LabelRow(label, *row) for label, row in enumerate(zip(*columns, strict=True))]


def _changed(state: LabelState) -> NDArray[np.int64]:
    """Return the ids of all labels that were added, renamed or removed since the training."""
    added = np.arange(state.first, len(state.labels), dtype=np.int64)
    return np.unique(np.concatenate([state.rows.ids, state.removed, added]))


def _all_rows(state: LabelState, trained: Tensor, weights: Mapping[str, float]) -> NDArray[np.float32]:
    """Return the vectors [L, d] of all labels of a state; a label that was added and then removed has zeros."""
    vectors = np.zeros((len(state.labels), trained.shape[1]), dtype=np.float32)
    vectors[: len(trained)] = _rows(trained)
    if len(state.rows):
        vectors[state.rows.ids] = _rows(state.folded(weights))
    return vectors


def _rows(vectors: Tensor) -> NDArray[np.float32]:
    rows: NDArray[np.float32] = vectors.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()
    return rows
