"""Several models over the same labels, used as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import DataError, SettingError, nearest
from megalabel.heads.answers import StoredAnswers
from megalabel.model.cut import BEST
from megalabel.model.match import Matched
from megalabel.model.model import Model
from megalabel.model.prediction import Prediction, as_predictions, none_for_blank
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Labels
    from megalabel.metrics.report import Report

__all__ = ["RULES", "Ensemble"]

RULES = ("rank", "score")
BLOCK = 1024  # texts ranked at a time


class Ensemble:
    """The mean of the rankings of several models over the same labels.

    Each of M models lists its ``depth`` best labels for a text. With r_m(l) the place of a label in the list of model
    m, from 1, and s_m(l) its score there, a label that any model lists scores

        rank:   (1 / M) sum_m (depth + 1 - r_m(l)) / depth    where unlisted labels add 0
        score:  (1 / M) sum_m s_m(l)                          where unlisted labels take the lowest listed score

    Ranks can be averaged over any models (XR-Transformer, Zhang et al., NeurIPS 2021, section 4). Scores should be on
    one scale: probabilities, or runs of one recipe with several seeds (the ensembles of DECAF and LightXML).

    Args:
        models: at least two, over labels with the same uids, in any order. Ids and texts are those of the first.
        by: ``rank`` or ``score``.
        depth: labels that each model lists; k of a search if that is larger.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=300,labels=30")
    >>> small = ["training.epochs=1", "batching.batch_size=64"]
    >>> both = Ensemble([train("depsl-cpu", data, changes=small, seed=seed) for seed in (0, 1)])
    >>> both.search(data.test.texts[:4], 3).ids.shape
    (4, 3)
    """

    thresholds, fusion, tail = None, None, 0.0  # a mean of rankings has no threshold; tails are those of the models

    def __init__(self, models: Sequence[Model], by: str = "rank", depth: int = 100) -> None:
        self.models, self.by, self.depth = list(models), by, depth

    @classmethod
    def load(
        cls,
        folders: Sequence[str | PathLike[str]],
        by: str = "rank",
        *,
        tail: float | None = None,
        device: str = "auto",
        exact: bool = False,
    ) -> Ensemble:
        """Read models or runs; the options are those of :meth:`Model.load`. An error names the folder it is about."""
        models = [Model.load(folder, tail=tail, device=device, exact=exact) for folder in folders]
        ensemble = cls(models, by)
        for folder, ids in zip(folders[1:], ensemble._ids[1:], strict=True):
            if ids is None:
                raise DataError(
                    f"its labels are not those of {fspath(folders[0])}",
                    path=fspath(folder),
                    remedy="put runs together that were trained on the same data",
                )
        return ensemble

    @property
    def labels(self) -> Labels:
        """Texts and uids of the labels."""
        return self.models[0].labels

    @property
    def heads(self) -> list[str]:
        """Names of the heads that all models have."""
        return [name for name in self.models[0].heads if all(name in model.heads for model in self.models)]

    def search(
        self, texts: Sequence[str], k: int, *, heads: str = "all", exclude: sparse.csr_matrix | None = None
    ) -> TopK:
        """Return ids and scores [n, k] for texts, as :meth:`Model.search` does."""
        if isinstance(texts, str):
            raise SettingError("give a list of texts, not one text", remedy='for example ensemble.predict(["text"])')
        self._check(k)
        parts = [
            self._search(texts[start : start + BLOCK], k, heads, None if exclude is None else exclude[start:])
            for start in range(0, max(1, len(texts)), BLOCK)
        ]
        return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def predict(self, texts: Sequence[str], k: int = BEST) -> list[list[Prediction]]:
        """Return the k best labels of each text, best first; an ensemble has no threshold."""
        return as_predictions(self.search(texts, min(k, len(self.labels))), self.labels)

    def match(self, data: Dataset, split: str = "test") -> Matched:
        """Return the rows of a split over the labels, as :meth:`Model.match` does."""
        return self.models[0].match(data, split)

    def evaluate(
        self, data: Dataset | Matched, split: str = "test", *, heads: str = "all", annif: bool = False
    ) -> Report:
        """Evaluate on a data set, or on what :meth:`match` returned; ``annif`` adds what ``annif eval`` prints."""
        rows = data if isinstance(data, Matched) else self.match(data, split)
        hidden = [np.flatnonzero(np.isin(ids, rows.hidden)).tolist() for ids in self._known_ids()]
        shown = [model.hiding(own) for model, own in zip(self.models, hidden, strict=True)]
        joined = Ensemble(shown, self.by, self.depth)
        best = joined.search(rows.split.texts, 100, heads=heads, exclude=rows.excluded)
        return rows.measure(best.ids, annif=annif)

    def _search(self, texts: Sequence[str], k: int, heads: str, exclude: sparse.csr_matrix | None) -> TopK:
        size, count = len(self.labels), len(texts)
        depth = min(max(k, self.depth), size)
        total, floor = sparse.csr_matrix((count, size), dtype=np.float64), np.zeros(count)
        for model, ids in zip(self.models, self._known_ids(), strict=True):
            out = None if exclude is None else exclude[:count][:, ids]
            top = model.search(texts, depth, heads=heads, exclude=out)
            listed = top.ids >= 0
            if self.by == "rank":
                values = np.broadcast_to(np.arange(depth, 0, -1.0) / depth, top.ids.shape)
            else:
                lowest = np.where(listed, top.scores, np.inf).min(axis=1)
                lowest = np.where(listed.any(axis=1), lowest, 0.0)
                values, floor = np.where(listed, top.scores, 0.0) - lowest[:, None], floor + lowest
            rows = np.broadcast_to(np.arange(count)[:, None], top.ids.shape)[listed]
            part = sparse.coo_matrix((values[listed], (rows, ids[top.ids[listed]])), shape=(count, size))
            total = total + part.tocsr()
        total.sort_indices()
        best = StoredAnswers(total.astype(np.float32)).best(k, None)
        scores = (best.scores + floor[:, None]) / len(self.models)
        return none_for_blank(TopK(best.ids, scores.astype(np.float32)), texts[:count])

    def _known_ids(self) -> list[NDArray[np.int64]]:
        known = [ids for ids in self._ids if ids is not None]
        if len(known) < len(self.models):
            raise DataError("these models have other labels", remedy="put models together that share their labels")
        return known

    @cached_property
    def _ids(self) -> list[NDArray[np.int64] | None]:
        """The id that the first model has for each label of every model; None if their labels differ."""
        place = {uid: row for row, uid in enumerate(self.labels.uids)}
        return [
            np.array([place[uid] for uid in model.labels.uids], dtype=np.int64)
            if len(model.labels) == len(place) and all(uid in place for uid in model.labels.uids)
            else None
            for model in self.models
        ]

    def _check(self, k: int) -> None:
        if len(self.models) < 2:
            raise SettingError(f"an ensemble needs at least two models, not {len(self.models)}")
        if self.by not in RULES:
            raise SettingError(f"unknown rule {self.by!r}", remedy=nearest(self.by, RULES))
        if k < 1 or self.depth < 1:
            raise SettingError(f"k and depth must be at least 1, not {k} and {self.depth}")
