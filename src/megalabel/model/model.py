"""A trained model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.dataset import Split
from megalabel.errors import SettingError, nearest
from megalabel.model.about import read_about
from megalabel.model.cut import make_cut, usable
from megalabel.model.explain import Explanation, explain
from megalabel.model.hub import OnHub
from megalabel.model.index import Indexes, build_index
from megalabel.model.labels import LabelState, LiveLabels
from megalabel.model.match import Matched, match
from megalabel.model.prediction import Prediction, as_predictions, none_for_blank
from megalabel.model.rank_fused import propose, rank_fused, rank_texts
from megalabel.model.stats import LabelStats
from megalabel.model.store import find_model, load_parts, save_model
from megalabel.network.cascade import Cascade
from megalabel.network.fit import Fitted
from megalabel.network.queries import LabelMaker, QueryTexts
from megalabel.network.vectors import LabelSide, fold_queries, label_side, space_side
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.data.dataset import Dataset, Labels
    from megalabel.fusion import FusedScores
    from megalabel.heads.answers import Answers
    from megalabel.index import Choice
    from megalabel.metrics.report import Report
    from megalabel.metrics.thresholds import Thresholds
    from megalabel.model.index import ModelIndex
    from megalabel.model.train_rows import TrainRows
    from megalabel.network.cascade import CascadeAnswers
    from megalabel.network.network import Network
    from megalabel.recipes.schema import Recipe

__all__ = ["Model"]


class Model(OnHub):
    """Encoders, heads and labels, ready to use.

    Args:
        recipe: the recipe it was trained with; of several stages, the last.
        network: the trained network.
        labels: texts and uids of the labels, in the order of training.
        weights: weights of the dense heads if scores are added.
        stats: label frequencies of the training data.
        fitted: the fitted heads.
        fusion: combines all heads; without it, the scores of the dense heads are added, or multiplied as
            probabilities along a cascade if the recipe says so.
        removed: ids of removed labels.
        indexes: indexes over the labels; without one, search is exact.
        thresholds: how many labels to return, chosen on validation rows; None if there is no such choice.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64"])
    >>> len(model.predict(["some text"], k=3)[0])
    3
    >>> model.evaluate(data).metrics == model.evaluate(data.test).metrics
    True
    >>> model.add_labels(["a label nobody trained on"])
    ['added-30']
    >>> model.predict(["a label nobody trained on"], k=1, heads="dual")[0][0].uid
    'added-30'
    """

    def __init__(
        self,
        recipe: Recipe,
        network: Network,
        labels: Labels,
        weights: Mapping[str, float],
        stats: LabelStats,
        fitted: Fitted | None = None,
        fusion: FusedScores | None = None,
        removed: Sequence[int] | NDArray[np.int64] = (),
        indexes: Sequence[ModelIndex] = (),
        thresholds: Thresholds | None = None,
    ) -> None:
        self.recipe, self.network = recipe, network
        self.weights = dict(weights)
        self.fusion, self.thresholds = fusion, thresholds
        self.cascade = recipe.predict.cascade  # settings of a search through coarser heads, or None
        self.tail = recipe.predict.tail  # a fused model ranks by p x (inverse propensity)^tail
        fitted = Fitted(stats.counts) if fitted is None else fitted
        start = LabelState(labels, stats, fitted, len(labels), np.unique(np.asarray(removed, dtype=np.int64)))
        self.live = LiveLabels(start, lambda: self._maker)
        self._start = start  # the trained labels
        self.about: dict[str, Any] = {}  # for its card
        self.indexes = Indexes(self.label_side, indexes)

    @property
    def state(self) -> LabelState:
        """The current labels: a consistent, immutable state, whatever changes meanwhile."""
        return self.live.state

    @property
    def labels(self) -> Labels:
        """Texts and uids of all labels, including removed ones: ids never change.

        Setting as many others changes how labels are shown, not how they are scored.
        """
        return self.state.labels

    @labels.setter
    def labels(self, labels: Labels) -> None:
        self.live.show(labels)

    @property
    def stats(self) -> LabelStats:
        """Label frequencies of the training data."""
        return self.state.stats

    @property
    def fitted(self) -> Fitted:
        """The fitted heads, with label frequencies."""
        return self.state.fitted

    @property
    def heads(self) -> list[str]:
        """Names of all heads, those of the network first."""
        return [*self.weights, *self.fitted.heads]

    def add_labels(self, texts: Sequence[str], uids: Sequence[str] | None = None) -> list[str]:
        """Add labels by their texts, without training, and return their uids.

        The next call can predict them, by every head (see its ``new_rows``): their text is their one training point.
        Searches in other threads see all of them or none. The first change takes longer.

        Args:
            texts: one per label, not empty.
            uids: names that no label has or had; by default texts, where those of others are, or ``added-`` and the id.
        """
        return self.live.add(texts, uids)

    def remove_labels(self, uids: Sequence[str]) -> None:
        """Remove labels from all searches; other ids do not change, and removed uids are not reused."""
        self.live.remove(uids)

    def rename_label(self, uid: str, text: str) -> None:
        """Change the text of a label; what the model learnt from its points stays."""
        self.live.rename(uid, text)

    def predict(
        self,
        texts: Sequence[str],
        k: int | None = None,
        *,
        goal: str | None = None,
        precision: float | None = None,
        heads: str = "all",
        tail: float | None = None,
    ) -> list[list[Prediction]]:
        """Return the labels of each text, best first: those above a threshold, or with ``k`` the k best.

        Without ``k`` a text gets the labels above the threshold that was best on validation texts for micro F1, for
        another ``goal`` (``sample-f1``, ``macro-f1``), or for a ``precision`` such as 0.9: none, a few or many, at most
        100. A model without a threshold (``model.thresholds`` is None), one head alone, and scores with a ``tail``
        have none: then the five best labels are returned.

        With ``k`` all labels are returned if there are fewer. A model with a cascade returns labels of the groups that
        its beam keeps, which may be fewer than k. An empty text has no labels. ``tail`` overrides that of the model: it
        promotes rare labels, from 0 (not at all) to 1.
        """
        state, cut = self.live.current(), make_cut(self, k, goal=goal, precision=precision, heads=heads, tail=tail)
        best = self._search(state, texts, min(cut.k, len(state.labels)), heads, None, self.chosen_tail(tail))
        return as_predictions(cut.of(none_for_blank(best, texts)), state.labels)

    def search(
        self,
        texts: Sequence[str],
        k: int,
        *,
        heads: str = "all",
        exclude: csr_matrix | None = None,
        tail: float | None = None,
    ) -> TopK:
        """Return ids and scores [n, k] for texts; ``exclude`` [n, L] removes pairs before the cut to k.

        A fused model ranks what its heads propose (``predict.candidates`` each); for a larger k the others follow.
        """
        state = self.live.current()
        return none_for_blank(self._search(state, texts, k, heads, exclude, self.chosen_tail(tail)), texts)

    def answers(self, texts: Sequence[str]) -> dict[str, Answers]:
        """Return the scores of each head for the texts."""
        return self._answers_of(self.live.current(), texts)

    def _answers_of(self, state: LabelState, texts: Sequence[str]) -> dict[str, Answers]:
        return self._answers(state, self._queries(state, texts))

    def candidates(
        self, texts: Sequence[str], exclude: csr_matrix | None = None
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float32]]]:
        """Return the labels [n, C] that any head proposes, -1 at the end of a row, and their scores by every head."""
        return propose(self.answers(texts), min(self.recipe.predict.candidates, len(self.labels)), exclude)

    def search_with_head_scores(
        self, texts: Sequence[str], k: int, *, heads: str = "all"
    ) -> tuple[TopK, dict[str, NDArray[np.float32]]]:
        """Return :meth:`search` and the scores [n, k] of its labels by every head; each text is encoded once.

        Scores of id -1 are undefined. Everything is in memory at once: pass a block of texts.
        """
        state = self.live.current()
        queries = self._queries(state, texts)
        answers = self._answers(state, queries)
        if heads in answers:
            top = answers[heads].best(k, None)
        elif heads == "all" and self.cascade is not None:
            top = self._cascade_answers(state, queries).best(k, None)
        elif heads == "all" and self.fusion is not None:
            top = rank_fused(self.fusion, state, answers, self.recipe.predict.candidates, k, None, self.tail)
        else:
            top = self._dense(state, self.chosen(heads), queries.vectors).best(k, None)
        return none_for_blank(top, texts), {name: answer.score(top.ids) for name, answer in answers.items()}

    def _search(
        self, state: LabelState, texts: Sequence[str], k: int, heads: str, exclude: csr_matrix | None, tail: float
    ) -> TopK:
        if heads == "all" and self.fusion is not None:
            find = partial(self._answers_of, state)
            return rank_texts(self.fusion, state, texts, find, self.recipe.predict.candidates, k, exclude, tail)
        if heads in state.fitted.heads:
            return self._answers_of(state, texts)[heads].best(k, exclude)
        queries = self._queries(state, texts)
        if heads == "all" and self.cascade is not None:
            return self._cascade_answers(state, queries).best(k, exclude)
        return self._dense(state, self.chosen(heads), queries.vectors).best(k, exclude)

    def _queries(self, state: LabelState, texts: Sequence[str]) -> QueryTexts:
        """Return queries whose features are computed on demand."""
        if isinstance(texts, str):
            raise SettingError("give a list of texts, not one text", remedy='for example model.predict(["some text"])')
        self.network.to_eval()
        return QueryTexts(texts, self.network, state.fitted)

    def _dense(self, state: LabelState, weights: Mapping[str, float], queries: Mapping[str, Tensor]) -> Answers:
        """Return the weighted sum of the dense heads."""
        folded = fold_queries(queries, weights, bias=self.has_bias(weights))
        return state.dense_answers(self.indexes.of(weights), folded)

    def _cascade_answers(self, state: LabelState, queries: QueryTexts) -> CascadeAnswers:
        """Return the scores along the cascade."""
        return state.cascade(self._trained_cascade, self.network).answers(queries.vectors)

    @cached_property
    def _trained_cascade(self) -> Cascade:
        """The cascade over the trained labels."""
        assert self.cascade is not None
        beam = self.cascade.beams(self.recipe.dense_heads)
        return Cascade.of(self.network, self._space_side, beam, self.cascade.weights)

    def has_bias(self, heads: Iterable[str]) -> bool:
        """Return whether some of the heads have a bias, which is the last column of their folded vectors."""
        return any(self.network.head(name).bias is not None for name in heads)

    def _answers(self, state: LabelState, queries: QueryTexts) -> dict[str, Answers]:
        """Return the scores of each head for the queries."""
        dense = {name: self._dense(state, {name: 1.0}, {name: vectors}) for name, vectors in queries.vectors.items()}
        return dense | state.fitted_answers(queries)

    def explain(self, text: str, label: str | None = None, k: int = 5) -> Explanation:
        """Explain why a label fits a text: scores of the heads, training texts, related labels.

        Args:
            text: the text.
            label: the uid of any label; the best label by default.
            k: number of training texts and of related labels.
        """
        return explain(self, text, label, k)

    @cached_property
    def train_rows(self) -> TrainRows | None:
        """The training texts and targets, if they were saved; read on first use."""
        return None if self._start.stats.train is None else self._start.stats.train()

    def encode(self, texts: Sequence[str], *, heads: str = "all") -> NDArray[np.float32]:
        """Return the query vectors [n, d] for search."""
        weights = self.chosen(heads)
        queries = self._queries(self.state, texts).vectors
        return fold_queries(queries, weights, bias=self.has_bias(weights)).cpu().numpy()

    def evaluate(
        self, data: Dataset | Split | Matched, split: str = "test", *, heads: str = "all", annif: bool = False
    ) -> Report:
        """Evaluate the model on a data set, on one split such as ``data.test``, or on what :meth:`match` returned.

        The columns of a split are the model's labels, with their training frequencies; ``annif`` adds Annif's metrics.
        """
        known = Matched.of_split(self.state, data) if isinstance(data, Split) else data
        rows = known if isinstance(known, Matched) else self.match(known, split)
        best = self.hiding(rows.hidden).search(rows.split.texts, 100, heads=heads, exclude=rows.excluded)
        return rows.measure(best.ids, annif=annif, scores=best.scores, thresholds=usable(self, heads)[0])

    def match(self, data: Dataset, split: str = "test") -> Matched:
        """Return the rows of a split over the labels of this model, matched by uid; its ``notes`` say what differs."""
        return match(self.state, data, split, None if data.points else self.train_rows)

    def hiding(self, ids: Sequence[int] | NDArray[np.int64]) -> Model:
        """Return this model without some labels, in all searches; its labels no longer follow those of this one."""
        model = copy(self)
        state = self.state.without(np.asarray(ids, dtype=np.int64)) if len(ids) else self.state
        model.live = LiveLabels(state, lambda: self._maker)
        return model

    def chosen_tail(self, tail: float | None) -> float:
        """Return the given tail, or the model's own."""
        if tail is None:
            return self.tail
        if self.fusion is None:
            raise SettingError("tail is for fused models, this one adds scores", remedy="train auto, or leave it out")
        if not 0 <= tail <= 1:
            raise SettingError(f"tail must lie in 0 to 1, not {tail}")
        return tail

    def chosen(self, heads: str) -> dict[str, float]:
        """Return the weights of ``all`` heads, or of the named one."""
        if heads == "all":
            return {name: weight for name, weight in self.weights.items() if weight > 0}
        if heads in self.fitted.heads:
            raise SettingError(f"the head {heads!r} has no vectors", remedy=nearest(heads, ["all", *self.weights]))
        if heads not in self.weights:
            raise SettingError(f"this model has no head {heads!r}", remedy=nearest(heads, ["all", *self.heads]))
        return {heads: 1.0}

    def head_weights(self) -> dict[str, float]:
        """Return how much each head counts: its weight in a sum, share in a fusion, or power along a cascade."""
        if self.cascade is not None:
            return {name: self.cascade.weights.get(name, 1.0) for name in self.weights}
        return dict(self.weights) if self.fusion is None else self.fusion.shares()

    def label_side(self) -> dict[str, LabelSide]:
        """Return the label vectors of every head, for the trained labels; computed once."""
        return self._side

    @cached_property
    def _side(self) -> dict[str, LabelSide]:
        return label_side(self.network, None, self._space_side)

    @cached_property
    def _space_side(self) -> dict[str, LabelSide]:
        """The vectors of the labels or groups that each head scores."""
        self.network.eval()
        texts = self.network.tokenise(self._start.labels.texts) if self.network.needs_text else None
        return space_side(self.network, texts)

    @cached_property
    def _maker(self) -> LabelMaker:
        """The maker of new labels."""
        self.network.eval()
        start = self._start
        return LabelMaker(self.network, start.fitted, self._side, start.labels.texts, start.stats.trained)

    def build_index(
        self, kind: str = "auto", *, heads: str = "all", queries: Sequence[str] | None = None, **settings: Any
    ) -> dict[str, Choice]:
        """Build an index for all searches from now on; :func:`~megalabel.model.index.build_index` has the settings."""
        return build_index(self, kind, heads, queries, settings)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False, texts: bool = True) -> None:
        """Write the model: recipe, encoder, weights (safetensors) and labels; completely or not at all.

        Added labels are merged with the others, as if all had been trained; an index keeps them outside, so that it
        need not be rebuilt. The training texts are saved for :meth:`explain`; ``texts=False`` leaves them out.
        """
        save_model(self, folder, overwrite=overwrite, texts=texts)

    @classmethod
    def load(
        cls, folder: str | PathLike[str], *, tail: float | None = None, device: str = "auto", exact: bool = False
    ) -> Model:
        """Read a model that :meth:`save` wrote; a run folder works as well.

        ``tail`` overrides that of the recipe: above 0, a fused model promotes rare labels. ``device`` is where the
        network computes: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; ``auto`` is ``cuda`` if there is one, else ``cpu``.
        An index saved with the model is mapped into memory and used, unless ``exact`` is set.
        """
        parts, saved, changes = load_parts(folder, device, exact=exact)
        model = cls(*parts)
        model.live.replay(saved, changes)
        model.live.share(model.indexes)
        model.tail = model.chosen_tail(tail)
        model.about = read_about(find_model(folder))
        return model
