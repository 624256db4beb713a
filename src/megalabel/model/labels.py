"""The labels of a model: immutable states, and changes that are safe under concurrent reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any
from unicodedata import category

import numpy as np
import torch
from torch import Tensor

from megalabel.data.dataset import Labels
from megalabel.errors import DataError, SettingError, nearest
from megalabel.heads.answers import Answers, DenseAnswers
from megalabel.heads.live import Live, Rows
from megalabel.index import ExactIndex
from megalabel.index.engines import EngineIndex, LabelRow
from megalabel.model.journal import Change
from megalabel.model.shared import SharedLabels
from megalabel.network.cascade import Cascade, ChangedRows
from megalabel.network.spaces import LabelSpace
from megalabel.network.vectors import LabelSide, fold_labels
from megalabel.types import LABELS
from megalabel.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.model.index import Indexes, ModelIndex
    from megalabel.model.stats import LabelStats
    from megalabel.network.fit import Fitted
    from megalabel.network.network import Network
    from megalabel.network.queries import LabelMaker, QueryTexts

__all__ = ["LabelState", "LiveLabels"]

_CONTROLS = {"Cc", "Zl", "Zp", "Cs"}  # control characters, line and paragraph separators, lone surrogates
_COPY = "copy the model again, or build the index again"
_MANY = 5_000  # with more labels, errors suggest no similar uid


@dataclass(frozen=True)
class LabelState:
    """Everything that a change of labels affects; a reader takes one state and uses nothing else.

    Args:
        labels: texts and uids, including removed labels: ids never change.
        stats: label frequencies; an added label has no points.
        fitted: the fitted heads, with their frequencies; there an added label counts as one with one point, its text.
        first: number of trained labels; the others were added.
        removed: [r] ids of removed labels, ascending.
        rows: what each head stores for added and renamed labels.
        sequence: the number of the last change.
    """

    labels: Labels
    stats: LabelStats
    fitted: Fitted
    first: int
    removed: NDArray[np.int64]
    rows: Rows = field(default_factory=Rows)
    sequence: int = 0
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # of this state alone

    def without(self, ids: NDArray[np.int64]) -> LabelState:
        """Return the state without these labels."""
        removed, rows = np.union1d(self.removed, ids), self.rows.without(ids)
        return replace(self, removed=removed, rows=rows, sequence=self.sequence + 1, _cache={})

    def having(self, labels: Labels, rows: Rows) -> LabelState:
        """Return the state with these labels, where changed ones have new rows; further labels are new."""
        more = len(labels) - len(self.labels)
        fitted = replace(self.fitted, counts=np.concatenate([self.fitted.counts, np.ones(more, dtype=np.int64)]))
        cache = {}
        if more:  # and nothing else has changed: indexes of changed labels only grow
            cache = {
                key: index.add(self._folded(rows, dict(key[1])))
                for key, index in list(self._cache.items())
                if isinstance(index, ExactIndex) and key[0] == "rows"
            }
        return replace(
            self, labels=labels, stats=self.stats.grown(more), fitted=fitted, rows=self.rows.updated(rows),
            sequence=self.sequence + 1, _cache=cache,
        )  # fmt: skip

    @property
    def alive(self) -> int:
        """The number of labels that are not removed."""
        return len(self.labels) - len(self.removed)

    def live(self, head: str) -> Live:
        """Return the labels as one head sees them."""
        cache = self._cache.setdefault(("live", head), {})
        rows, parts = self.rows, self.rows.parts.get(head, {})
        return Live(self.first, len(self.labels), rows.ids, rows.added, self.removed, parts, cache)

    def dense_answers(self, index: ModelIndex, queries: Tensor) -> Answers:
        """Return the scores of dense heads; the index holds the trained labels, folded with its weights."""
        if isinstance(index.index, EngineIndex):
            view = self._cache.setdefault(("engine", index.key), index.index.of(len(self.labels), self.removed))
            return DenseAnswers(view, queries)
        live, weights = self.live(""), index.weights
        if len(live.hidden):
            key = "trained", index.key
            known = self._cache.get(key)
            if known is None or known[0] is not index:  # another index may have been built since
                known = self._cache[key] = index, index.without(live.hidden)
            index = known[1]
        return live.merged(index.answers(queries, self.first), lambda: DenseAnswers(self._rows_index(weights), queries))

    def cascade(self, trained: Cascade, network: Network) -> Cascade:
        """Return the cascade over the current labels, given that over the trained ones."""
        if not len(self.rows) and not len(self.removed) and len(self.labels) == self.first:
            return trained
        if "cascade" not in self._cache:
            spaces = {LABELS: LabelSpace(LABELS, len(self.labels)), **self.grown_spaces(network)}
            parts: Any = self.rows.parts
            changed = {
                name: ChangedRows(self.rows.ids, LabelSide(parts[name]["vectors"], parts[name].get("bias")))
                for name in (network.heads if len(self.rows) else ())
            }
            by_head = {name: spaces[network.space(name).name] for name in network.heads}
            self._cache["cascade"] = trained.having(by_head, changed, self.removed)
        cascade: Cascade = self._cache["cascade"]
        return cascade

    def fitted_answers(self, queries: QueryTexts) -> dict[str, Answers]:
        """Return the scores of the fitted heads."""
        return self.fitted.answers(queries, self.live)

    def _rows_index(self, weights: Mapping[str, float]) -> ExactIndex:
        """Return an index of the changed labels."""
        key = "rows", tuple(weights.items())
        if key not in self._cache:
            self._cache[key] = ExactIndex(self.folded(weights))
        index: ExactIndex = self._cache[key]
        return index

    def folded(self, weights: Mapping[str, float]) -> Tensor:
        """Return the vectors [c, d] of the changed labels, folded with these weights."""
        return self._folded(self.rows, weights)

    @staticmethod
    def _folded(rows: Rows, weights: Mapping[str, float]) -> Tensor:
        parts: Any = rows.parts
        side = {name: LabelSide(parts[name]["vectors"], parts[name].get("bias")) for name in weights}
        return fold_labels(side, weights)[0]

    # ------------------------------------------------------------------ as if all labels had been trained

    @torch.no_grad()
    def grown_tensors(self, network: Network) -> dict[str, Tensor]:
        """Return what is stored of the heads, with a row for every label of the state where there is one per label."""
        tensors = {name: value.cpu() for name, value in network.stored_heads().items()}
        if len(self.labels) == self.first and not len(self.rows):
            return tensors
        for head in network.heads:
            if network.space(head).members is not None:
                continue  # its rows are groups
            for part, parameter in network.head(head).row_parameters().items():
                name = f"heads.{head}.{parameter}"
                table = tensors[name]
                grown = torch.cat([table, table.new_zeros((len(self.labels) - len(table), *table.shape[1:]))])
                if len(self.rows):
                    rows: Any = self.rows.parts[head][part]
                    grown[torch.from_numpy(self.rows.ids)] = torch.as_tensor(rows).cpu().to(table)
                tensors[name] = grown
        return tensors

    def grown_fitted(self) -> Fitted:
        """Return the fitted heads over every label of the state."""
        return self.fitted.grown(self.live)

    def grown_spaces(self, network: Network) -> dict[str, LabelSpace]:
        """Return the coarser label spaces with every label of the state; a removed label stays where it was."""
        more = len(self.labels) - self.first
        spaces = {}
        for head in network.heads:
            space = network.space(head)
            if space.members is None:
                continue
            groups = np.zeros(more, dtype=np.int64)
            if len(self.rows):
                new = self.rows.ids >= self.first
                groups[self.rows.ids[new] - self.first] = np.asarray(self.rows.parts[head]["group"])[new]
            spaces[space.name] = space.grown(groups) if more else space
        return spaces


class LiveLabels:
    """Holds the state of the labels and makes the next one.

    A change prepares a whole new state beside the old one and puts it in place in one assignment: a reader sees the
    labels before or after, never between. Changes wait for each other. A change that is refused changes nothing.
    ``record``, if set, is called with the number of a change and the change before it is applied; if that raises,
    it is not applied.

    Args:
        state: the labels to begin with.
        maker: gives what makes rows of label texts; called when first needed.
    """

    record: Callable[[int, Change], None] | None = None
    shared: SharedLabels | None = None  # where an engine holds the labels: changes are made there, and others' followed

    def __init__(self, state: LabelState, maker: Callable[[], LabelMaker]) -> None:
        self.state = state
        self._maker = maker
        self._lock = RLock()
        self._known: dict[str, int] | None = None  # uid -> id

    def current(self) -> LabelState:
        """Return the labels as they are now; where others change them too, after following them."""
        if self.shared is not None and self.shared.is_ahead(self.state):
            with self._lock:
                self.shared.catch_up(self)
        return self.state

    def share(self, indexes: Indexes) -> None:
        """Let the labels be those of an engine, if one of these indexes is there; follow it at once."""
        table, self.shared = indexes.table, None
        if table is not None:
            shared = SharedLabels(table, indexes.columns())
            with self._lock:
                shared.catch_up(self)
            self.shared = shared

    def take(self, rows: Sequence[LabelRow], sequence: int) -> None:
        """Make changes of others: labels as they are after change number ``sequence``, in the order of their ids."""
        with self._lock:
            after, known = LiveLabels(self.state, self._maker), len(self.state.labels)
            new = [row for row in rows if row.id >= known]
            if [row.id for row in new] != list(range(known, known + len(new))):
                raise DataError("labels are missing between those of this model and new ones", remedy=_COPY)
            after.add([row.text for row in new], [row.uid for row in new])
            for row in rows:
                if row.id < known and self.state.labels.uids[row.id] != row.uid:
                    raise DataError(f"label {row.id:,} has the uid {row.uid!r} there, and another here", remedy=_COPY)
                if row.id < known and self.state.labels.texts[row.id] != row.text:
                    after.rename(row.uid, row.text)
            after.remove([row.uid for row in rows if row.removed and row.id not in self.state.removed])
            self.state = replace(after.state, sequence=sequence)
            self.ids().update({row.uid: row.id for row in new})

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let no other thread or process change labels meanwhile, and begin with the labels as they are now."""
        with self._lock:
            if self.shared is None:
                yield
                return
            self._maker()  # may take long
            with self.shared.changing():
                self.shared.catch_up(self)
                yield

    def find(self, uid: str) -> int:
        """Return the id of the label with this uid."""
        label = self.ids().get(uid)
        if label is None:
            known = self.state.labels.uids
            hint = nearest(uid, known) if isinstance(uid, str) and len(known) <= _MANY else ""
            raise DataError(
                f"no label has the uid {uid!r}", remedy=hint if hint.startswith("did") else "list the labels"
            )
        if label in self.state.removed:
            raise DataError(f"the label {uid!r} was removed")
        return label

    def add(self, texts: Sequence[str], uids: Sequence[str] | None = None) -> list[str]:
        """Add labels by their texts and return their uids."""
        _check_list(texts, "texts")
        for text in texts:
            _check_text(text)
        with self._changing():
            labels = self.state.labels
            names = self._new_uids(texts) if uids is None else self._check_uids(uids, len(texts))
            if not names:
                return []
            ids = np.arange(len(labels), len(labels) + len(names))
            rows = self._maker().rows(ids, list(texts), added=True)
            grown = Labels([*labels.texts, *texts], [*labels.uids, *names], labels.concepts)
            state = self.state.having(grown, rows)
            self._apply(state, Change("add", {"uids": names, "texts": list(texts)}))
            self.ids().update(zip(names, ids.tolist(), strict=True))
            return names

    def remove(self, uids: Sequence[str]) -> None:
        """Let no search find these labels any more."""
        _check_list(uids, "uids")
        with self._changing():
            ids = np.unique([self.find(uid) for uid in uids]).astype(np.int64)
            if len(ids) < len(uids):
                raise DataError("duplicate uid among those to remove")
            if len(ids) and len(ids) == self.state.alive:
                raise DataError("this would remove all labels", remedy="a model needs at least one")
            if len(ids):
                self._apply(self.state.without(ids), Change("remove", {"uids": list(uids)}))

    def rename(self, uid: str, text: str) -> None:
        """Give a label another text."""
        _check_text(text)
        with self._changing():
            label, labels = self.find(uid), self.state.labels
            texts = list(labels.texts)
            texts[label] = text
            rows = self._maker().rows(np.array([label]), [text], added=label >= self.state.first)
            concepts = {**labels.concepts, label: replace(labels.concept(label), name=None)}
            state = self.state.having(Labels(texts, labels.uids, concepts), rows)
            self._apply(state, Change("rename", {"uid": uid, "text": text}))

    def _apply(self, state: LabelState, change: Change) -> None:
        if self.shared is not None:
            self.shared.write(state, change)
        elif self.record is not None:
            self.record(state.sequence, change)
        self.state = state

    def replay(self, saved: int, changes: Sequence[tuple[int, Change]]) -> None:
        """Make recorded changes again, after the one with the number ``saved``."""
        self.state = replace(self.state, sequence=saved)
        methods: dict[str, Callable[..., Any]] = {"add": self.add, "remove": self.remove, "rename": self.rename}
        for _, change in changes:
            methods[change.kind](**change.values)

    def show(self, labels: Labels) -> None:
        """Take other texts and uids for the same labels, without scoring them by these."""
        with self._lock:
            if len(labels) != len(self.state.labels):
                raise DataError(f"{counted(len(labels), 'label')} in place of {len(self.state.labels):,}")
            self.state, self._known = replace(self.state, labels=labels), None
            self.__dict__.pop("_uids_are_texts", None)

    def ids(self) -> dict[str, int]:
        """Return the id of every uid; it only ever grows."""
        if self._known is None:
            self._known = {uid: label for label, uid in enumerate(self.state.labels.uids)}
        return self._known

    def _new_uids(self, texts: Sequence[str]) -> list[str]:
        """Return names that no label has: the text where it is that of the other labels, else ``added-`` and the id."""
        names: list[str] = []
        for label, text in enumerate(texts, start=len(self.state.labels)):
            name = text
            if not self._uids_are_texts or text in self.ids() or text in names or _has_controls(text):
                name = f"added-{label}"
            while name in self.ids() or name in names:
                name += "+"
            names.append(name)
        return names

    @cached_property
    def _uids_are_texts(self) -> bool:
        """Whether most labels have their text as uid, as those of a table do; some may have been renamed."""
        labels = self.state.labels
        return 2 * sum(text == uid for text, uid in zip(labels.texts, labels.uids, strict=True)) > len(labels)

    def _check_uids(self, uids: Sequence[str], count: int) -> list[str]:
        _check_list(uids, "uids")
        if len(uids) != count:
            raise DataError(f"{len(uids)} uids for {count} labels", remedy="give one for each text")
        seen: set[str] = set()
        for uid in uids:
            if not isinstance(uid, str) or not uid.strip():
                raise DataError(f"a uid must be a text, not {uid!r}")
            if _has_controls(uid):
                raise DataError(f"the uid {uid[:60]!r} contains a control character", remedy="remove it")
            if uid in seen or uid in self.ids():
                gone = uid in self.ids() and self.ids()[uid] in self.state.removed
                what = f"the uid {uid!r} belonged to a label that was removed" if gone else f"duplicate uid {uid!r}"
                raise DataError(what, remedy="give every label a uid of its own")
            seen.add(uid)
        return list(uids)


def _check_list(values: Sequence[str], name: str) -> None:
    if isinstance(values, str):
        raise SettingError(f"give a list of {name}, not one", remedy='for example ["one", "another"]')


def _has_controls(text: str) -> bool:
    return any(category(character) in _CONTROLS for character in text)


def _check_text(text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"a label must have a text, not {text!r}")
