"""The model that answers of the soak are compared with: it follows every acknowledged change of labels."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

import megalabel as ml
from megalabel.model.snapshot import Snapshot

TOLERANCE = 1e-5
SPARE = 10  # labels beyond k, for ties at the end of a row


@dataclass(frozen=True)
class Change:
    """A change of labels: of one or several, all or none."""

    kind: str  # add, rename or remove
    uids: tuple[str, ...]
    texts: tuple[str, ...] = ()

    @property
    def request(self) -> tuple[str, str, dict[str, Any]]:
        """Method, path and body."""
        if self.kind == "add":
            return "POST", "/labels", {"texts": self.texts, "uids": self.uids}
        if self.kind == "remove":
            return "DELETE", "/labels", {"uids": self.uids}
        return "PATCH", f"/labels/{self.uids[0]}", {"text": self.texts[0]}

    def apply(self, labels: dict[str, str]) -> dict[str, str]:
        """Return the labels, uid to text, after this change."""
        if self.kind == "remove":
            return {uid: text for uid, text in labels.items() if uid not in self.uids}
        return labels | dict(zip(self.uids, self.texts, strict=True))


@dataclass(frozen=True)
class Asked:
    """A prediction, the versions of the labels it may have seen, and its answer."""

    body: dict[str, Any]
    first: int
    last: int
    rows: list[list[dict[str, Any]]]


@dataclass(frozen=True)
class Recovery:
    """What a restarted server has, compared with what was acknowledged."""

    lost: int  # labels not as acknowledged
    half_applied: bool  # the change that was under way
    survived: bool  # the change that was under way
    shift: float  # largest difference of a score before and after, if no label was lost


class Reference:
    """A model in this process, and the state of its labels after each change."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.changes = 0
        self.milliseconds: list[float] = []  # of acknowledged changes
        self.changing = False
        self._under_way: Change | None = None
        self._added: list[str] = []  # uids that can be renamed or removed
        self._count = 0
        self.load()

    def load(self) -> None:
        """Load the model from disk."""
        self.model = ml.Model.load(self.run, device="cpu")
        self._states = [self.model.state]
        self._added = [uid for uid in self.labels() if uid.startswith("soak-")]

    @property
    def version(self) -> int:
        """The version of the labels by the last acknowledged change."""
        return len(self._states) - 1

    @property
    def latest(self) -> int:
        """The version that an answer may have seen: a change under way counts."""
        return self.version + (self._under_way is not None)

    def labels(self) -> dict[str, str]:
        """Return the labels in the order of their ids: uid to text."""
        state, hidden = self.model.state, set(self.model.state.removed.tolist())
        both = zip(state.labels.uids, state.labels.texts, strict=True)
        return {uid: text for label, (uid, text) in enumerate(both) if label not in hidden}

    def any_uid(self, rng: random.Random) -> str:
        """Return the uid of a label."""
        return rng.choice(list(self.labels()))

    def next_change(self, rng: random.Random, texts: Any) -> Change:
        """Return a change that the model accepts."""
        kind = rng.choice(["add", "add", "rename", "remove"]) if len(self._added) > 5 else "add"
        if kind == "add":
            count = rng.choice([1, 1, 1, 3, 10])
            uids = tuple(f"soak-{self._count + index}" for index in range(count))
            self._count += count
            return Change("add", uids, tuple(f"{texts.one(100)} {uid}" for uid in uids))
        if kind == "rename":
            uid = rng.choice(self._added)
            return Change("rename", (uid,), (f"{texts.one(100)} again {self.changes}",))
        return Change("remove", tuple(rng.sample(self._added, rng.choice([1, 1, 4]))))

    def started(self, change: Change) -> None:
        """A change is sent."""
        self._under_way = change

    def refused(self) -> None:
        """The change under way was refused: nothing changed."""
        self._under_way = None

    def acknowledged(self, change: Change, milliseconds: float | None = None) -> None:
        """The change is in the model of the server; follow it."""
        if change.kind == "add":
            self.model.add_labels(change.texts, change.uids)
            self._added += change.uids
        elif change.kind == "rename":
            self.model.rename_label(change.uids[0], change.texts[0])
        else:
            self.model.remove_labels(change.uids)
            self._added = [uid for uid in self._added if uid not in change.uids]
        self._states.append(self.model.state)
        self._under_way = None
        if milliseconds is not None:
            self.changes += 1
            self.milliseconds.append(milliseconds)

    def recover(self, served: dict[str, str], texts: Sequence[str]) -> Recovery:
        """Compare the labels of a restarted server with those acknowledged; then load the model as the server did.

        A model that is loaded renames labels added before like trained ones, so that this model must be loaded, too.
        Its scores for the texts are compared with those before: saving counts the words of added labels again.
        """
        expected, change = self.labels(), self._under_way
        survived = served != expected and change is not None and served == change.apply(expected)
        if survived and change is not None:
            self.acknowledged(change)
            expected = self.labels()
        self._under_way = None
        touched = set() if change is None else set(change.uids)
        different = {uid for uid in expected.keys() | served.keys() if expected.get(uid) != served.get(uid)}
        before = [self._best(text) for text in texts]
        self.load()
        shifts = [
            abs(a - b)
            for old, text in zip(before, texts, strict=True)
            for a, b in zip(old, self._best(text), strict=True)
        ]
        shift = 0.0 if different else max(shifts)
        lost, half_applied = len(different - touched), bool(different & touched) and not touched <= different
        return Recovery(lost, half_applied, survived, shift)

    def _best(self, text: str) -> list[float]:
        """Return the best scores; labels of equal scores may come in any order."""
        return [label.score for label in self.model.predict([text], k=5)[0]]

    def forget_past(self) -> None:
        """Keep only the last state of the labels."""
        self._states = self._states[-1:]

    def errors(self, asked: Sequence[Asked]) -> Iterable[str]:
        """Yield what is wrong with answers: each row must equal the model's in one of the versions it may have seen.

        The texts of one request may go into several calls of the model, so that they see different versions.
        """
        for one in asked:
            if len(one.rows) != len(one.body["texts"]):
                yield f"{len(one.rows)} rows for {len(one.body['texts'])} texts"
            wrong: dict[int, str] = dict.fromkeys(range(len(one.rows)), "")
            for version in range(one.first, min(one.last, self.version) + 1):
                wrong = self._wrong_rows(one, version, list(wrong))
                if not wrong:
                    break
            if one.last <= self.version:  # a change without an answer cannot be repeated here
                for row, reason in wrong.items():
                    yield f"{reason} for {one.body | {'texts': one.body['texts'][row][:60]}}"

    def _wrong_rows(self, asked: Asked, version: int, rows: Sequence[int]) -> dict[int, str]:
        state, body = self._states[version], asked.body
        texts = [body["texts"][row] for row in rows]
        top = Snapshot(self.model, state).search(texts, body["k"] + SPARE, heads=body.get("heads", "all"))
        wrong = {}
        for row, ids, scores in zip(rows, top.ids.tolist(), top.scores.tolist(), strict=True):
            known = {label: score for label, score in zip(ids, scores, strict=True) if label >= 0}
            reason = _row_error(asked.rows[row], known, body["k"], state.labels)
            if reason is not None:
                wrong[row] = reason
        return wrong

    def explain_error(self, body: dict[str, Any], answer: dict[str, Any]) -> str | None:
        """Return what is wrong with an explanation, or None."""
        expected = orjson.loads(orjson.dumps(self.model.explain(body["text"], body.get("label"), body["k"])))
        return None if _near(answer, expected) else f"the explanation of {body} differs from the model's"


def _row_error(row: list[dict[str, Any]], scores: dict[int, float], k: int, labels: ml.Labels) -> str | None:
    """Return what is wrong with a row; labels of equal scores may come in any order."""
    best = sorted(scores.values(), reverse=True)[:k]
    if len(row) != len(best):
        return f"{len(row)} labels instead of {len(best)}"
    for label, score in zip(row, best, strict=True):
        own = scores.get(label["id"])
        if own is None or abs(own - label["score"]) > TOLERANCE or abs(score - label["score"]) > TOLERANCE:
            return f"{label['uid']!r} with {label['score']:.6f}, not {own} or {score:.6f}"
        if (label["uid"], label["text"]) != (labels.uids[label["id"]], labels.texts[label["id"]]):
            return f"label {label['id']} with another text or uid"
    return None


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_near, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-4 * max(1.0, abs(other))
    return bool(one == other)
