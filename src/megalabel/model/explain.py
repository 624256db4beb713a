"""Why a label fits a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch.nn.functional import normalize

from megalabel.errors import DataError, SettingError
from megalabel.fusion import union
from megalabel.model.prediction import named_parents
from megalabel.model.rank_fused import propose
from megalabel.network.vectors import query_side
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.heads.answers import Answers
    from megalabel.model.labels import LabelState
    from megalabel.model.model import Model
    from megalabel.model.train_rows import TrainRows
    from megalabel.network.cascade import CascadeAnswers

__all__ = ["Explanation", "HeadPart", "Near", "Related", "explain"]

MAX_TEXTS = 2_000  # training texts of a label to compare with
HEAD, TORSO = 100, 10  # a head label has more training points than HEAD, a torso label at least TORSO


@dataclass(frozen=True, slots=True)
class HeadPart:
    """The score of one head for the label, and its contribution to the ranking."""

    head: str
    score: float
    adds: float


@dataclass(frozen=True, slots=True)
class Near:
    """A training text with the label, and the cosine of its vector with that of the text."""

    text: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Related:
    """A label that occurs together with this one in training texts."""

    uid: str
    text: str
    together: int  # training texts with both
    share: float  # of the training texts of the label explained


@dataclass(frozen=True)
class Explanation:
    """The reasons for a label.

    The contributions of the heads and ``rest`` sum to ``total``, by which labels are ranked. In a fused model,
    ``rest`` comes from the label frequency (and a bias) or from a decision tree, and ``probability`` is calibrated
    from ``total``, unless there were too few validation rows. In a model with a cascade, a head adds the log of its
    probability, and ``probability`` is their product. Other models have neither.
    """

    text: str
    id: int
    uid: str
    label: str
    rank: int  # among the candidates of all heads, from 1
    points: int  # training points
    frequency: str  # head, torso, tail or unseen
    added: bool  # after training, by its text
    heads: list[HeadPart]
    rest: float
    rest_by: str | None  # frequency or tree
    total: float
    probability: float | None
    nearest: list[Near]
    related: list[Related]
    texts_kept: bool  # if False, nearest and related are empty
    parents: list[list[str]]  # uid and name of each next broader label


def explain(model: Model, text: str, label: str | None, k: int) -> Explanation:
    """Return why a label, by default the best, fits a text; see :meth:`Model.explain`."""
    if not isinstance(text, str):
        raise SettingError(f"give one text, not {type(text).__name__}")
    if k < 1:
        raise SettingError(f"k must be at least 1, not {k}")
    state = model.live.current()
    if label is None:
        if not text.strip():
            raise DataError("the text is empty", remedy="name a label")
        chosen = model._search(state, [text], 1, "all", None, model.tail).ids[0, 0]
        if chosen < 0:
            raise DataError("no label was found for this text", remedy="name a label")
    else:
        chosen = model.live.find(label)
    queries = model._queries(state, [text])
    cascade = None if model.cascade is None else model._cascade_answers(state, queries)
    return _explain(model, state, text, int(chosen), k, model._answers(state, queries), cascade)


def _explain(
    model: Model,
    state: LabelState,
    text: str,
    label: int,
    k: int,
    answers: Mapping[str, Answers],
    cascade: CascadeAnswers | None,
) -> Explanation:
    """Return why a label fits a text, given the scores of each head, and those of the cascade if there is one."""
    count = min(model.recipe.predict.candidates, len(state.labels))
    own = TopK(np.array([[label]]), np.zeros((1, 1), dtype=np.float32))
    if cascade is None:
        ids, scores = propose(answers, count, None, own)
        parts, rest = _parts(model, state, ids, scores)
    else:
        ids = union(own, cascade.best(count, None))
        scores = {name: answer.score(ids) for name, answer in answers.items()}
        parts, rest = cascade.parts(ids), np.zeros(ids.shape)
    place = int(np.flatnonzero(ids[0] == label)[0])
    total = (sum(parts.values()) + rest)[0]
    better = (total > total[place]) | ((total == total[place]) & (ids[0] < label))
    train = model.train_rows
    trained = state.stats.trained
    if trained is None:
        trained = state.first if train is None else train.targets.shape[1]
    added = label >= trained
    points = 0 if added else int(state.stats.counts[label])
    rows = np.empty(0, dtype=np.int64) if train is None else train.rows_of(label)
    probability, rest_by = None, None
    if model.fusion is not None:
        rest_by = model.fusion.rest
        if model.fusion.calibration is not None:
            probability = float(model.fusion.probabilities(scores, ids, state.fitted.counts)[0, place])
    if cascade is not None:
        probability = float(np.exp(total[place]))
    return Explanation(
        text, label, state.labels.uids[label], state.labels.texts[label],
        rank=1 + int(np.sum(better & (ids[0] >= 0))), points=points, frequency=_frequency(points), added=added,
        heads=[HeadPart(name, float(scores[name][0, place]), float(part[0, place])) for name, part in parts.items()],
        rest=float(rest[0, place]), rest_by=rest_by, total=float(total[place]), probability=probability,
        nearest=[] if train is None else _nearest(model, text, train, rows, k),
        related=[] if train is None else _related(state, train, rows, label, k), texts_kept=train is not None,
        parents=[list(pair) for pair in named_parents(state.labels, label)],
    )  # fmt: skip


def _parts(
    model: Model, state: LabelState, ids: NDArray[np.int64], scores: Mapping[str, NDArray[np.float32]]
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """Return the contribution of each head [1, C], and the rest."""
    if model.fusion is not None:
        return model.fusion.contributions(scores, ids, state.fitted.counts)
    weights = model.chosen("all")
    parts = {name: weights.get(name, 0.0) * values.astype(np.float64) for name, values in scores.items()}
    return parts, np.zeros(ids.shape)


def _frequency(points: int) -> str:
    return "head" if points > HEAD else "torso" if points >= TORSO else "tail" if points else "unseen"


def _nearest(model: Model, text: str, train: TrainRows, rows: NDArray[np.int64], k: int) -> list[Near]:
    """Return the rows nearest to the text by the query vectors of the first head; a sample if there are very many."""
    if not len(rows):
        return []
    some = rows[np.linspace(0, len(rows) - 1, min(len(rows), MAX_TEXTS)).astype(np.int64)]
    texts = [train.texts[row] for row in some.tolist()]
    sides = query_side(model.network, model.network.tokenise([text, *texts]))
    vectors = normalize(next(iter(sides.values())), dim=1).cpu().numpy()
    cosines = vectors[1:] @ vectors[0]
    return [Near(texts[place], float(cosines[place])) for place in np.argsort(-cosines, kind="stable")[:k].tolist()]


def _related(state: LabelState, train: TrainRows, rows: NDArray[np.int64], label: int, k: int) -> list[Related]:
    """Return the labels that occur most often in the rows."""
    if not len(rows):
        return []
    together = np.bincount(train.targets[rows].indices, minlength=train.targets.shape[1])
    together[[label, *(one for one in state.removed.tolist() if one < len(together))]] = 0
    best = [one for one in np.argsort(-together, kind="stable")[:k].tolist() if together[one]]
    return [
        Related(state.labels.uids[one], state.labels.texts[one], int(together[one]), float(together[one] / len(rows)))
        for one in best
    ]
