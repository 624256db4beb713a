"""Add, remove and rename labels while others read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.dataset import Labels
from megalabel.errors import DataError, SettingError, nearest

if TYPE_CHECKING:
    from megalabel.model.new_labels import NewLabels
    from megalabel.model.rows import Rows
    from megalabel.model.state import State

__all__ = ["LiveLabels"]

_MANY = 5_000  # labels beyond which no similar uid is looked for


class LiveLabels:
    """Holds the state of the labels and makes the next one out of it.

    A change prepares a whole new state beside the old and puts it in place in one assignment: who
    reads sees the labels before or after, never between. Changes wait for each other. A change
    that is refused changes nothing.

    Args:
        state: the labels to begin with.
        rules: gives what makes rows of label texts; asked when first needed.
    """

    def __init__(self, state: State, rules: Callable[[], NewLabels]) -> None:
        self.state = state
        self._rules = rules
        self._lock = RLock()
        self._known: dict[str, int] | None = None  # uid -> id

    def find(self, uid: str) -> int:
        """Return the id of the label with this uid."""
        label = self._ids().get(uid)
        if label is None:
            known = self.state.labels.uids
            few = nearest(uid, known) if isinstance(uid, str) and len(known) <= _MANY else "megalabel labels list"
            raise DataError(f"no label has the uid {uid!r}", remedy=few if few.startswith("did") else "list the labels")
        if label in self.state.removed:
            raise DataError(f"the label {uid!r} was removed")
        return label

    def add(self, texts: Sequence[str], uids: Sequence[str] | None = None) -> list[str]:
        """Add labels by their texts and return their uids."""
        _check_list(texts, "texts")
        for text in texts:
            _check_text(text)
        with self._lock:
            labels = self.state.labels
            names = self._new_uids(len(texts)) if uids is None else self._check_uids(uids, len(texts))
            if not names:
                return []
            ids = np.arange(len(labels), len(labels) + len(names))
            rows = self._rules().added(ids, list(texts))
            self.state = self.state.having(Labels([*labels.texts, *texts], [*labels.uids, *names]), rows)
            self._ids().update(zip(names, ids.tolist(), strict=True))
            return names

    def remove(self, uids: Sequence[str]) -> None:
        """Let no search find these labels any more."""
        _check_list(uids, "uids")
        with self._lock:
            ids = np.unique([self.find(uid) for uid in uids]).astype(np.int64)
            if len(ids) < len(uids):
                raise DataError("a uid to remove stands twice")
            if len(ids) and len(ids) == self.state.alive:
                raise DataError("this would remove all labels", remedy="a model needs at least one")
            if len(ids):
                self.state = self.state.without(ids)

    def rename(self, uid: str, text: str) -> None:
        """Give a label another text."""
        _check_text(text)
        with self._lock:
            label, labels = self.find(uid), self.state.labels
            texts = list(labels.texts)
            texts[label] = text
            self.state = self.state.having(Labels(texts, labels.uids), self._rows(label, text))

    def show(self, labels: Labels) -> None:
        """Take other texts and uids for the same labels, without scoring them by these."""
        with self._lock:
            if len(labels) != len(self.state.labels):
                raise DataError(f"{len(labels):,} labels in place of {len(self.state.labels):,}")
            self.state, self._known = replace(self.state, labels=labels), None

    def _rows(self, label: int, text: str) -> Rows:
        ids, rules = np.array([label]), self._rules()
        return rules.added(ids, [text]) if label >= self.state.first else rules.renamed(ids, [text])

    def _ids(self) -> dict[str, int]:
        if self._known is None:
            self._known = {uid: label for label, uid in enumerate(self.state.labels.uids)}
        return self._known

    def _new_uids(self, count: int) -> list[str]:
        """Return names that no label has: ``added-`` and the id."""
        found: list[str] = []
        for label in range(len(self.state.labels), len(self.state.labels) + count):
            name = f"added-{label}"
            while name in self._ids():
                name += "+"
            found.append(name)
        return found

    def _check_uids(self, uids: Sequence[str], count: int) -> list[str]:
        _check_list(uids, "uids")
        if len(uids) != count:
            raise DataError(f"{len(uids)} uids for {count} labels", remedy="give one for each text")
        seen: set[str] = set()
        for uid in uids:
            if not isinstance(uid, str) or not uid.strip():
                raise DataError(f"a uid must be a text, not {uid!r}")
            if uid in seen or uid in self._ids():
                gone = uid in self._ids() and self._ids()[uid] in self.state.removed
                what = "belonged to a label that was removed" if gone else "stands twice"
                raise DataError(f"the uid {uid!r} {what}", remedy="give every label a name of its own")
            seen.add(uid)
        return list(uids)


def _check_list(values: Sequence[str], name: str) -> None:
    if isinstance(values, str):
        raise SettingError(f"give a list of {name}, not one", remedy='for example ["one", "another"]')


def _check_text(text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"a label must have a text, not {text!r}")
