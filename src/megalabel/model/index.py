"""The indexes over the labels of a model: exact ones on demand, others built and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.errors import DataError, SettingError
from megalabel.heads.answers import Answers, DenseAnswers
from megalabel.heads.live import MergedAnswers
from megalabel.index import AnyIndex, Choice, ExactIndex, choose_index, load_index
from megalabel.index._store import read_kind
from megalabel.index.choose_index import check_choice
from megalabel.index.engines import ENGINES, EngineIndex, LabelRow, LabelTable
from megalabel.model.shared import build_engine_indexes
from megalabel.network.vectors import LabelSide, fold_labels, fold_queries, query_side

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.model.labels import LabelState
    from megalabel.model.model import Model

__all__ = ["INDEX", "Indexes", "ModelIndex", "build_index", "follow_labels", "load_indexes"]

INDEX = "index"  # folder inside the model folder
_LABELS, _CHANGED = "labels", "changed"  # folders inside the index folder
_QUERIES = 256  # texts to measure an index with
_K = 10  # labels per query, unless the model defines it


@dataclass(frozen=True)
class ModelIndex:
    """An index over labels 0 to L - 1; labels added or renamed since are kept outside and searched exactly.

    Args:
        weights: the heads whose vectors it holds, with their weights.
        index: index over the labels at the time of building.
        summary: measurements at the time of building, in one line; may be empty.
        ids: [c] labels added or renamed since, ascending.
        changed: an index over their vectors; None if there are none.

    >>> index = ModelIndex({"dual": 1.0}, ExactIndex(torch.eye(2)))
    >>> grown = index.grown(np.array([2]), torch.tensor([[3.0, 0.0]]), [])
    >>> grown.answers(torch.tensor([[1.0, 0.5]]), 3).best(2, None).ids.tolist()
    [[2, 0]]
    """

    weights: Mapping[str, float]
    index: AnyIndex | EngineIndex
    summary: str = ""
    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    changed: ExactIndex | None = None

    @property
    def key(self) -> tuple[tuple[str, float], ...]:
        """The key in :class:`Indexes`."""
        return tuple(self.weights.items())

    def answers(self, queries: Tensor, labels: int) -> Answers:
        """Return the scores of queries [Q, d] over this number of labels."""
        if isinstance(self.index, EngineIndex):
            return DenseAnswers(self.index, queries)
        old = DenseAnswers(self.index, queries.to(self.index.vectors.device))
        if self.changed is None:
            return old if len(self.index) == labels else MergedAnswers(old, None, self.ids, len(self.index))
        new = DenseAnswers(self.changed, queries.to(self.changed.vectors.device))
        return MergedAnswers(old, new, self.ids, len(self.index))

    def without(self, hidden: NDArray[np.int64]) -> ModelIndex:
        """Return an index that never returns these labels."""
        index = self.index.remove(hidden[hidden < len(self.index)])
        if self.changed is None:
            return replace(self, index=index)
        return replace(self, index=index, changed=self.changed.remove(np.flatnonzero(np.isin(self.ids, hidden))))

    def grown(self, ids: NDArray[np.int64], vectors: Tensor, removed: NDArray[np.int64] | list[int]) -> ModelIndex:
        """Return the same with labels [n] that were added or renamed, by their vectors [n, d]."""
        kept = np.flatnonzero(~np.isin(self.ids, ids))
        parts = [vectors.cpu()] if self.changed is None else [self.changed.vectors.cpu()[kept], vectors.cpu()]
        both = np.concatenate([self.ids[kept], ids])
        order = np.argsort(both)
        order = order[~np.isin(both[order], removed)]
        if not len(order):
            return replace(self, ids=both[order], changed=None)
        changed = ExactIndex(torch.cat(parts)[torch.from_numpy(order)])
        old = both[order][both[order] < len(self.index)]
        return replace(self, index=self.index.remove(old), ids=both[order], changed=changed)

    def to(self, device: torch.device) -> ModelIndex:
        """Return the same with vectors that are searched exactly on another device; approximate indexes stay."""
        if device.type in ("cpu", "mps") or not isinstance(self.index, ExactIndex):
            return self
        return replace(self, index=self.index.to(device))

    def save(self, folder: Path) -> dict[str, Any]:
        """Write what :meth:`load` reads, and return its entry in the model card."""
        self.index.save(folder / _LABELS)
        if self.changed is not None:
            self.changed.save(folder / _CHANGED)
        return {"weights": dict(self.weights), "summary": self.summary, "changed": self.ids.tolist()}

    @classmethod
    def load(cls, folder: Path, card: Mapping[str, Any]) -> ModelIndex:
        """Read what :meth:`save` wrote, mapped into memory; every file is checked."""
        ids = np.array(card["changed"], dtype=np.int64)
        changed = load_index(folder / _CHANGED) if len(ids) else None
        if not isinstance(changed, ExactIndex | None):
            raise DataError("labels beside an index are searched exactly", path=folder, remedy="build it again")
        return cls(card["weights"], load_index(folder / _LABELS), card["summary"], ids, changed)


class Indexes:
    """One index for each set of heads: those built and saved with the model, exact ones built on first use.

    Args:
        side: returns the label vectors of every head.
        built: existing indexes.
    """

    def __init__(self, side: Callable[[], Mapping[str, LabelSide]], built: Sequence[ModelIndex] = ()) -> None:
        self._side = side
        self._built = {index.key: index for index in built}
        self._exact: dict[tuple[tuple[str, float], ...], ModelIndex] = {}

    @property
    def built(self) -> list[ModelIndex]:
        """The indexes that are saved with the model."""
        return list(self._built.values())

    def of(self, weights: Mapping[str, float]) -> ModelIndex:
        """Return the index over the vectors of these heads, folded with their weights."""
        key = tuple(weights.items())
        index = self._built.get(key) or self._exact.get(key)
        if index is None:
            index = self._exact[key] = ModelIndex(dict(weights), ExactIndex(fold_labels(self._side(), weights)[0]))
        return index

    def build(self, weights: Mapping[str, float], queries: Tensor | None, kind: str, **settings: Any) -> Choice:
        """Build and measure an index, which replaces an older one."""
        choice = choose_index(fold_labels(self._side(), weights)[0], queries, kind, **settings)
        index = ModelIndex(dict(weights), choice.index, str(choice))
        self._built[index.key] = index
        self._exact.pop(index.key, None)
        return choice

    def take(self, weights: Mapping[str, float], choice: Choice) -> None:
        """Take an index of an engine, which replaces an older one."""
        index = ModelIndex(dict(weights), choice.index, str(choice))
        self._built[index.key] = index

    @property
    def table(self) -> LabelTable | None:
        """The table of the indexes in an engine; None if there are none."""
        return next((one.index.table for one in self.built if isinstance(one.index, EngineIndex)), None)

    def columns(self) -> dict[str, Mapping[str, float]]:
        """Return the weights of the heads whose vectors each column of that table holds."""
        return {one.index.column: one.weights for one in self.built if isinstance(one.index, EngineIndex)}

    def drop_engines(self) -> None:
        """Drop the indexes in an engine; its table stays."""
        self._built = {key: one for key, one in self._built.items() if not isinstance(one.index, EngineIndex)}

    def drop(self) -> int:
        """Drop all built indexes, and return their number."""
        count = len(self._built)
        self._built = {}
        return count

    def beside(self, state: LabelState) -> int:
        """Return the largest number of labels added or renamed since an index was built."""
        local = [index for index in self.built if not isinstance(index.index, EngineIndex)]
        return max((len(np.union1d(index.ids, state.rows.ids)) for index in local), default=0)

    def save(self, folder: Path, state: LabelState) -> list[dict[str, Any]]:
        """Write the built indexes into ``folder``; labels added or renamed in the state stay outside them."""
        cards = []
        for number, index in enumerate(self.built):
            if not isinstance(index.index, EngineIndex) and (len(state.rows) or len(index.ids)):
                vectors = state.folded(index.weights) if len(state.rows) else index.index.vectors[:0]
                index = index.grown(state.rows.ids, vectors, state.removed)
            cards.append(index.save(folder / str(number)))
        return cards


def load_indexes(
    folder: Path, cards: Sequence[Mapping[str, Any]], heads: Sequence[str], labels: int
) -> list[ModelIndex]:
    """Read the indexes that :meth:`Indexes.save` wrote, for a model with these heads and this number of labels."""
    indexes: list[ModelIndex] = []
    for number, card in enumerate(cards):
        index = ModelIndex.load(folder / str(number), card)
        last = int(np.max(index.ids, initial=0))
        if isinstance(index.index, EngineIndex):  # which has more labels than the files, if some were added since
            known = next((one.index for one in indexes if isinstance(one.index, EngineIndex)), index.index)
            index.index.table = known.table
        else:
            last = max(len(index.index) - 1, last)
        if not set(index.weights) <= set(heads) or last >= labels or len(index.ids) != len(index.changed or ()):
            raise DataError("this index belongs to another model", path=folder / str(number), remedy="build it again")
        indexes.append(index)
    return indexes


def follow_labels(folder: Path, cards: Sequence[Mapping[str, Any]], sequence: int) -> list[LabelRow]:
    """Return the labels that changed after change number ``sequence``, if an engine holds those of this model."""
    for number, _ in enumerate(cards):
        if read_kind(folder / str(number) / _LABELS) in ENGINES:
            table = EngineIndex.load(folder / str(number) / _LABELS).table
            table.check(table.exists())
            return table.changes(sequence)
    return []


def build_index(
    model: Model, kind: str, heads: str, queries: Sequence[str] | None, settings: Mapping[str, Any]
) -> dict[str, Choice]:
    """Build what labels are searched with, measure it on queries, and return the choices by head.

    A fused model gets one index for each dense head, which is what it searches with; a model that adds scores gets
    one over all of them; a head named is searched by itself. Labels added or renamed later are kept beside the
    index until it is built again.

    Args:
        model: the model; the index is kept with it.
        kind: exact, hnsw, ivf, beam or auto, as for :func:`~megalabel.index.choose_index`; or pgvector or lancedb.
        heads: all, or one by name.
        queries: texts to measure with; those of the training if left out and kept.
        settings: of :func:`~megalabel.index.choose_index`: ``k`` (10, or the candidates a fused model asks of each
            head), ``at_least``, ``searches``, ``seed``, and those of the kind. For an engine, ``url`` says where it is,
            and ``table`` names its table, which holds the labels from then on: their changes are made there, and seen
            by every process that has loaded the model with this index.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64"])
    >>> model.build_index("ivf")["all"].recall
    1.0
    """
    if isinstance(queries, str):
        raise SettingError("give a list of queries, not one")
    engine = {name: settings[name] for name in ("url", "table") if name in settings}
    settings = {name: value for name, value in settings.items() if name not in engine}
    check_choice(kind, **settings)
    if engine and kind not in ENGINES:
        raise SettingError(f"an index of kind {kind} has no {' or '.join(engine)}", remedy="leave it out")
    if heads == "all" and model.cascade is not None:
        raise SettingError("this model searches through groups of labels, without an index", remedy="name a head")
    fused = model.fusion is not None
    options = {"k": model.recipe.predict.candidates if fused else _K, "seed": 0, **settings}
    options["k"] = min(options["k"], len(model.state.labels))
    wanted = {heads: model.chosen(heads)}
    if fused and heads == "all":
        wanted = {name: {name: 1.0} for name in model.network.heads}
    side = _query_side(model, queries, options["seed"])
    folded = {
        name: None if side is None else fold_queries(side, weights, bias=model.has_bias(weights))
        for name, weights in wanted.items()
    }
    if kind in ENGINES:
        place = {"url": None, "table": None, **engine}
        choices = build_engine_indexes(model, kind, wanted, folded, **place, **options)
        model.indexes.drop_engines()
        for name, weights in wanted.items():
            model.indexes.take(weights, choices[name])
    else:
        choices = {
            name: model.indexes.build(weights, folded[name], kind, **options) for name, weights in wanted.items()
        }
        model.indexes.drop_engines()
    model.live.share(model.indexes)
    return choices


def _query_side(model: Model, queries: Sequence[str] | None, seed: int) -> dict[str, Tensor] | None:
    """Return the vectors of some queries by head; None if there are no texts to make them of."""
    if queries is None:
        rows = model.train_rows
        queries = () if rows is None else rows.texts
        if not len(queries):
            return None
    if not len(queries):
        raise DataError("there are no queries to measure with", remedy="leave queries out, or give some")
    chosen = np.arange(len(queries))
    if len(queries) > _QUERIES:
        chosen = np.sort(np.random.default_rng(seed).choice(len(queries), _QUERIES, replace=False))
    model.network.eval()
    return query_side(model.network, model.network.tokenise([queries[place] for place in chosen.tolist()]))
