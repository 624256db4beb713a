"""A trained model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.dataset import Split
from megalabel.errors import DataError, SettingError, nearest
from megalabel.fusion import union
from megalabel.metrics.evaluate import evaluate
from megalabel.metrics.propensity import inverse_propensity
from megalabel.model.explain import Explanation, explain
from megalabel.model.index import Indexes, build_index
from megalabel.model.labels import LabelState, LiveLabels
from megalabel.model.prediction import Prediction
from megalabel.model.stats import LabelStats
from megalabel.model.store import load_parts, save_model
from megalabel.network.fit import Fitted
from megalabel.network.queries import AskedTexts, LabelMaker
from megalabel.network.vectors import LabelSide, fold_queries, label_side
from megalabel.progress import progress
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.data.dataset import Dataset, Labels
    from megalabel.fusion import Fusion
    from megalabel.heads.answers import Answers
    from megalabel.index import Choice
    from megalabel.metrics.report import Report
    from megalabel.model.index import ModelIndex
    from megalabel.model.train_rows import TrainRows
    from megalabel.network.network import Network
    from megalabel.recipes.schema import Recipe

__all__ = ["Model"]

ROWS = 1024  # queries fused at once


class Model:
    """Encoders, heads and labels, ready to use.

    Args:
        recipe: what it was trained by; of several stages, the last.
        network: the trained network.
        labels: texts and uids of the labels, in the order of training.
        weights: how much each head counts when scores are added.
        stats: label frequencies of the training data.
        fitted: heads that train no encoder.
        fusion: puts all heads together; without it, scores of the dense heads are added.
        removed: ids of labels that are not found.
        indexes: indexes over the labels; without one, search is exact.

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
        fusion: Fusion | None = None,
        removed: Sequence[int] | NDArray[np.int64] = (),
        indexes: Sequence[ModelIndex] = (),
    ) -> None:
        self.recipe, self.network = recipe, network
        self.weights = dict(weights)
        self.fusion = fusion
        self.tail = recipe.predict.tail  # a fused model ranks by p x (inverse propensity)^tail
        fitted = Fitted(stats.counts) if fitted is None else fitted
        start = LabelState(labels, stats, fitted, len(labels), np.unique(np.asarray(removed, dtype=np.int64)))
        self.live = LiveLabels(start, lambda: self._maker)
        self._start = start  # the labels of the training
        self.indexes = Indexes(self.label_side, indexes)

    @property
    def state(self) -> LabelState:
        """The labels as they are now; what is read from one state fits together, whatever changes meanwhile."""
        return self.live.state

    @property
    def labels(self) -> Labels:
        """Texts and uids of all labels, those removed too: ids never move.

        Others may be set, as many, to show labels by; what labels are scored by stays.
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
        """Heads that train no encoder, as fitted, and label frequencies."""
        return self.state.fitted

    @property
    def heads(self) -> list[str]:
        """Names of all heads, those of the network first."""
        return [*self.weights, *self.fitted.heads]

    def add_labels(self, texts: Sequence[str], uids: Sequence[str] | None = None) -> list[str]:
        """Add labels that were not trained, by their texts alone, and return their uids.

        They are found from the next call on, by every head (its ``new_rows`` says how), and count as labels seen
        once. Searches in other threads see all of them or none.
        The first change takes longer, to look at the labels there are.

        Args:
            texts: one for each label, none empty.
            uids: names that no label has or had; made up where left out.
        """
        return self.live.add(texts, uids)

    def remove_labels(self, uids: Sequence[str]) -> None:
        """Find these labels no more; ids of other labels stay, and the uids are not given again."""
        self.live.remove(uids)

    def rename_label(self, uid: str, text: str) -> None:
        """Give a label another text; what was learnt from its points stays."""
        self.live.rename(uid, text)

    def predict(
        self, texts: Sequence[str], k: int = 5, *, heads: str = "all", tail: float | None = None
    ) -> list[list[Prediction]]:
        """Return the k best labels of each text, best first; all of them where there are fewer than k.

        ``tail`` in place of the model's own brings rare labels forward, from 0 (not at all) to 1.
        """
        state = self.state
        best = self._search(state, texts, min(k, len(state.labels)), heads, tail=tail)
        return [
            [
                Prediction(int(label), state.labels.uids[label], state.labels.texts[label], float(score))
                for label, score in zip(ids.tolist(), scores.tolist(), strict=True)
                if label >= 0
            ]
            for ids, scores in zip(best.ids, best.scores, strict=True)
        ]

    def search(
        self,
        texts: Sequence[str],
        k: int,
        *,
        heads: str = "all",
        exclude: csr_matrix | None = None,
        tail: float | None = None,
    ) -> TopK:
        """Return ids and scores [n, k] for texts; ``exclude`` [n, L] leaves pairs out before the cut."""
        return self._search(self.state, texts, k, heads, exclude, tail)

    def answers(self, texts: Sequence[str]) -> dict[str, Answers]:
        """Return what each head says of the texts by itself."""
        return self._answers(self.state, self._asked(self.state, texts))

    def candidates(
        self, texts: Sequence[str], exclude: csr_matrix | None = None
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float32]]]:
        """Return the labels [n, C] that any head proposes, -1 at the end of a row, and their scores by every head."""
        return self._candidates(self.state, self.answers(texts), exclude)

    def search_with_head_scores(
        self, texts: Sequence[str], k: int, *, heads: str = "all"
    ) -> tuple[TopK, dict[str, NDArray[np.float32]]]:
        """Return :meth:`search` and the scores [n, k] of its labels by every head; each text is encoded once.

        Where an id is -1 the scores are undefined. Answers of all texts are held at once: pass a block of them.
        """
        state = self.state
        asked = self._asked(state, texts)
        answers = self._answers(state, asked)
        if heads in answers:
            top = answers[heads].best(k, None)
        elif heads == "all" and self.fusion is not None:
            top = self._rank(state, answers, k, None, self.tail)
        else:
            top = self._dense(state, self.chosen(heads), asked.vectors).best(k, None)
        return top, {name: answer.of(top.ids) for name, answer in answers.items()}

    def _search(
        self,
        state: LabelState,
        texts: Sequence[str],
        k: int,
        heads: str,
        exclude: csr_matrix | None = None,
        tail: float | None = None,
    ) -> TopK:
        self._check_tail(tail)
        if heads == "all" and self.fusion is not None:
            return self._fused(state, texts, k, exclude, self.tail if tail is None else tail)
        if heads in state.fitted.heads:
            return self._answers(state, self._asked(state, texts))[heads].best(k, exclude)
        asked = self._asked(state, texts)
        return self._dense(state, self.chosen(heads), asked.vectors).best(k, exclude)

    def _asked(self, state: LabelState, texts: Sequence[str]) -> AskedTexts:
        """Return queries, of which every head reads what it needs."""
        if isinstance(texts, str):
            raise SettingError("give a list of texts, not one text", remedy='for example model.predict(["some text"])')
        self.network.eval()
        return AskedTexts(texts, self.network, state.fitted)

    def _dense(self, state: LabelState, weights: Mapping[str, float], queries: Mapping[str, Tensor]) -> Answers:
        """Answer by dense heads, their scores added with these weights."""
        folded = fold_queries(queries, weights, bias=self.has_bias(weights))
        return state.dense_answers(self.indexes.of(weights), folded)

    def has_bias(self, heads: Iterable[str]) -> bool:
        """Return whether some of the heads have a bias, which is the last column of their folded vectors."""
        return any(self.network.head(name).bias is not None for name in heads)

    def _answers(self, state: LabelState, asked: AskedTexts) -> dict[str, Answers]:
        """Return what each head says of the queries by itself."""
        dense = {name: self._dense(state, {name: 1.0}, {name: vectors}) for name, vectors in asked.vectors.items()}
        return dense | state.fitted_answers(asked)

    def _candidates(
        self, state: LabelState, answers: Mapping[str, Answers], exclude: csr_matrix | None, *more: TopK
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float32]]]:
        """Return the labels [n, C] that any head proposes, and their scores by every head."""
        k = min(self.recipe.predict.candidates, len(state.labels))
        ids = union(*more, *(answer.best(k, exclude) for answer in answers.values()))
        return ids, {name: answer.of(ids) for name, answer in answers.items()}

    def _rank(
        self, state: LabelState, answers: Mapping[str, Answers], k: int, exclude: csr_matrix | None, tail: float
    ) -> TopK:
        """Rank the candidates of all heads by the fusion."""
        assert self.fusion is not None
        stats = state.stats
        rare = inverse_propensity(stats.counts, stats.points, *stats.propensity) if tail else None
        ids, scores = self._candidates(state, answers, exclude)
        return self.fusion.rank(scores, ids, state.fitted.counts, k, inverse_propensity=rare, tail=tail)

    def _fused(self, state: LabelState, texts: Sequence[str], k: int, exclude: csr_matrix | None, tail: float) -> TopK:
        """Rank by the fusion, a block of queries at a time."""
        parts = []
        with progress("searching", total=len(texts), unit="queries") as step:
            for start in range(0, len(texts), ROWS):
                block = slice(start, min(start + ROWS, len(texts)))
                answers = self._answers(state, self._asked(state, texts[block]))
                parts.append(self._rank(state, answers, k, None if exclude is None else exclude[block], tail))
                step(block.stop - start)
        return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def explain(self, text: str, label: str | None = None, k: int = 5) -> Explanation:
        """Say why a label fits a text: heads, training texts, labels seen with it.

        Args:
            text: the text.
            label: the uid of a label, whether it was found or not; the best one where left out.
            k: training texts and related labels to name.
        """
        if not isinstance(text, str):
            raise SettingError(f"give one text, not {type(text).__name__}")
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        state = self.state
        if label is None:
            chosen = self._search(state, [text], 1, "all").ids[0, 0]
            if chosen < 0:
                raise DataError("no label was found for this text", remedy="name one")
        else:
            chosen = self.live.find(label)
        answers = self._answers(state, self._asked(state, [text]))
        own = TopK(np.array([[chosen]]), np.zeros((1, 1), dtype=np.float32))
        return explain(self, state, text, int(chosen), k, *self._candidates(state, answers, None, own))

    @cached_property
    def train_rows(self) -> TrainRows | None:
        """The texts and targets of the training, where they were kept; read when first asked for."""
        return None if self._start.stats.train is None else self._start.stats.train()

    def encode(self, texts: Sequence[str], *, heads: str = "all") -> NDArray[np.float32]:
        """Return the query vectors [n, d] that are searched with."""
        weights = self.chosen(heads)
        queries = self._asked(self.state, texts).vectors
        vectors: NDArray[np.float32] = fold_queries(queries, weights, bias=self.has_bias(weights)).cpu().numpy()
        return vectors

    def evaluate(self, data: Dataset | Split, split: str = "test", *, heads: str = "all") -> Report:
        """Measure the model on a data set that has the same labels, or on one split such as ``data.test``.

        A split alone is measured with the label frequencies of the training data, a data set
        with its own.
        """
        if isinstance(data, Split):
            if data.targets.shape[1] != len(self.labels):
                raise DataError(
                    f"this split is over {data.targets.shape[1]:,} labels, the model knows {len(self.labels):,}",
                    remedy="evaluate on the data the model was trained for",
                )
            part, stats = data, self.stats
        else:
            self._check_labels(data)
            part, stats = data.split(split), LabelStats.of(data)
        best = self.search(part.texts, 100, heads=heads, exclude=part.excluded())
        A, B = stats.propensity
        return evaluate(best.ids, part.targets, counts=stats.counts, points=stats.points, A=A, B=B, filter=part.filter)

    def _check_labels(self, data: Dataset) -> None:
        """Raise a DataError for a data set whose labels are not those of the model."""
        if list(data.labels.uids) != list(self.labels.uids):
            raise DataError(
                f"{data.name} has {len(data.labels):,} labels, the model was trained on {len(self.labels):,} others",
                remedy="evaluate on the data the model was trained for",
            )
        same = sum(here == there for here, there in zip(data.labels.texts, self.labels.texts, strict=True))
        if 2 * same < len(self.labels):
            raise DataError(
                f"only {same:,} of {len(self.labels):,} labels of {data.name} have the text the model knows them by",
                remedy="evaluate on the data the model was trained for",
            )

    def _check_tail(self, tail: float | None) -> None:
        if tail is None:
            return
        if self.fusion is None:
            raise SettingError("tail is for fused models, this one adds scores", remedy="train auto, or leave it out")
        if not 0 <= tail <= 1:
            raise SettingError(f"tail must lie in 0 to 1, not {tail}")

    def chosen(self, heads: str) -> dict[str, float]:
        """Return the weights of the heads asked for: ``all``, or one of them by name."""
        if heads == "all":
            return {name: weight for name, weight in self.weights.items() if weight > 0}
        if heads in self.fitted.heads:
            raise SettingError(f"the head {heads!r} has no vectors", remedy=nearest(heads, ["all", *self.weights]))
        if heads not in self.weights:
            raise SettingError(f"this model has no head {heads!r}", remedy=nearest(heads, ["all", *self.heads]))
        return {heads: 1.0}

    def label_side(self) -> dict[str, LabelSide]:
        """Return the label vectors of every head, for the labels of the training; computed once."""
        return self._side

    @cached_property
    def _side(self) -> dict[str, LabelSide]:
        self.network.eval()
        texts = self.network.tokenise(self._start.labels.texts) if self.network.needs_text else None
        return label_side(self.network, texts)

    @cached_property
    def _maker(self) -> LabelMaker:
        """What makes new labels of texts."""
        self.network.eval()
        return LabelMaker(self.network, self._start.fitted, self._side, self._start.labels.texts)

    def build_index(
        self, kind: str = "auto", *, heads: str = "all", queries: Sequence[str] | None = None, **settings: Any
    ) -> dict[str, Choice]:
        """Build an index over the labels and measure it; it is used from now on and saved with the model.

        :func:`~megalabel.model.index.build_index` says what the settings are.
        """
        return build_index(self, kind, heads, queries, settings)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False, texts: bool = True) -> None:
        """Write the model: recipe, encoder, weights (safetensors) and labels; whole or not at all.

        Labels that were added take their places among the others, as if all had been trained;
        an index keeps them beside it, so that it need not be built again.
        The texts of the training are kept for :meth:`explain`, as many bytes as they have;
        ``texts=False`` leaves them out.
        """
        save_model(self, folder, overwrite=overwrite, texts=texts)

    @classmethod
    def load(
        cls, folder: str | PathLike[str], *, tail: float | None = None, device: str = "auto", exact: bool = False
    ) -> Model:
        """Read a model that :meth:`save` wrote; a run folder works as well.

        ``tail`` is in place of the recipe's: above 0, a fused model brings rare labels forward.
        ``device`` is where the network computes, whatever it was trained on: ``cpu``, ``cuda``,
        ``cuda:1``, ``mps``; ``auto`` is ``cuda`` if there is one, else ``cpu``.
        An index saved with the model is mapped into memory and used; ``exact`` leaves it out.
        """
        parts = load_parts(folder, device, exact=exact)
        model = cls(*parts)
        model._check_tail(tail)
        if tail is not None:
            model.tail = tail
        return model
