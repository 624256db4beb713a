"""A scikit-learn style classifier of raw texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.errors import DataError, MissingExtraError, SettingError

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise MissingExtraError("scikit-learn", extra="sklearn", what="MegalabelClassifier") from error

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.model import Model
    from megalabel.types import TopK

__all__ = ["MegalabelClassifier"]


class MegalabelClassifier(BaseEstimator):  # type: ignore[misc]
    """Classify raw texts into many labels: ``fit(texts, lists of label names)``, then ``predict(texts)``.

    Works in a ``Pipeline`` (as the last step, after steps that return texts), ``cross_val_score``,
    ``GridSearchCV`` and ``clone``. It is not tagged as a scikit-learn classifier: scikit-learn has
    no target type for lists of names and would try to stratify them. Folds are plain ``KFold``. As
    in every run, a part of the rows given to ``fit`` is held out to select on.

    Args:
        recipe: a name (see ``megalabel recipes``) or a YAML file.
        changes: changes to it, ``["training.epochs=3"]``.
        label_texts: label name -> text that describes it; by default the name itself. Labels that
            occur only here can be predicted too.
        k: number of labels for each text.
        threshold: drop labels with a lower score; None always predicts k.
        seed: random seed; overrides the recipe's.
        device: overrides the recipe's: auto, cpu, cuda, ...

    After ``fit``, ``classes_`` [L] holds the label names in the order of columns and ``model_``
    the :class:`megalabel.Model`.

    >>> texts = ["red shoe", "blue shoe", "red hat", "blue hat"] * 10
    >>> names = [text.split() for text in texts]
    >>> small = ["encoder.source=null", "encoder.options={dim: 16, words: 256, bigrams: 0, characters: 0}"]
    >>> changes = [*small, "batching.batch_size=8", "training.epochs=20"]
    >>> classifier = MegalabelClassifier("unidec-cpu", changes=changes, k=2).fit(texts, names)
    >>> sorted(classifier.predict(["blue hat"])[0])
    ['blue', 'hat']
    """

    def __init__(
        self,
        recipe: str = "auto",
        *,
        changes: Sequence[str] = (),
        label_texts: Mapping[str, str] | None = None,
        k: int = 5,
        threshold: float | None = None,
        seed: int = 0,
        device: str | None = None,
    ) -> None:
        self.recipe = recipe
        self.changes = changes
        self.label_texts = label_texts
        self.k = k
        self.threshold = threshold
        self.seed = seed
        self.device = device

    def fit(self, X: Iterable[str], y: Iterable[Iterable[str]]) -> Self:
        """Train on texts and, for each, the names of its labels (a plain name counts as a list of one)."""
        from megalabel.trainer import train

        texts, names = _texts(X), _names(y)
        if len(texts) != len(names):
            raise DataError(f"there are {len(texts):,} texts but {len(names):,} lists of labels")
        label_texts = self.label_texts or {}
        classes = sorted({name for row in names for name in row} | set(label_texts))
        column = {name: i for i, name in enumerate(classes)}
        indptr = np.cumsum([0, *map(len, names)])
        indices = np.fromiter((column[name] for row in names for name in row), dtype=np.int64, count=int(indptr[-1]))
        ones = np.ones(len(indices), dtype=np.float32)
        targets = sparse.csr_matrix((ones, indices, indptr), shape=(len(texts), len(classes)))
        split = Split(texts, targets, [f"row-{i}" for i in range(len(texts))])
        labels = Labels([label_texts.get(name, name) for name in classes], classes)
        data = Dataset(
            split, split, labels, name="sklearn"
        )  # the test split is not used: training reads train rows only
        self.model_: Model = train(self.recipe, data, changes=list(self.changes), seed=self.seed, device=self.device)
        self.classes_ = np.array(classes, dtype=object)
        return self

    def predict(self, X: Iterable[str]) -> NDArray[np.object_]:
        """Return [n] lists of label names, best first."""
        best = self._search(X)
        threshold = -np.inf if self.threshold is None else self.threshold
        rows = np.empty(len(best.ids), dtype=object)
        for row, (ids, scores) in enumerate(zip(best.ids, best.scores, strict=True)):
            rows[row] = self.classes_[ids[(ids >= 0) & (scores >= threshold)]].tolist()
        return rows

    def decision_function(self, X: Iterable[str]) -> sparse.csr_matrix:
        """Return the scores of the k best labels of each text, sparse [n, L]; a missing cell does not mean 0."""
        best = self._search(X)
        kept = best.ids >= 0
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        shape = (len(best.ids), len(self.classes_))
        return sparse.csr_matrix((best.scores[kept], best.ids[kept], indptr), shape=shape)

    @available_if(lambda self: self._has_probabilities())  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Iterable[str]) -> sparse.csr_matrix:
        """Return the probabilities of the k best labels of each text, sparse [n, L]; for fused recipes such as auto."""
        return self.decision_function(X)

    def score(self, X: Iterable[str], y: Iterable[Iterable[str]]) -> float:
        """Return the share of texts whose best label is correct (P@1, 0 to 1)."""
        names = _names(y)
        best = self._search(X, k=1).ids[:, 0]
        return float(np.mean([b >= 0 and self.classes_[b] in row for b, row in zip(best, names, strict=True)]))

    def _search(self, X: Iterable[str], k: int | None = None) -> TopK:
        check_is_fitted(self, "model_")
        k = self.k if k is None else k
        if k < 1:
            raise SettingError(f"k is {k}", remedy="give at least 1")
        return self.model_.search(_texts(X), min(k, len(self.classes_)))

    def _has_probabilities(self) -> bool:
        """Whether the scores of the fitted model are probabilities."""
        model = getattr(self, "model_", None)
        return model is not None and model.fusion is not None and model.tail == 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = True
        return tags


def _texts(X: Iterable[str]) -> list[str]:
    """Return the texts as a list; X can also be an array or a column of a data frame."""
    if isinstance(X, str):
        raise SettingError("give a list of texts, not one text", remedy='for example predict(["some text"])')
    texts = list(X)
    invalid = next((text for text in texts if not isinstance(text, str)), None)
    if invalid is not None:
        raise DataError(f"expected a text, not {type(invalid).__name__}", remedy="give raw texts, one string each")
    return [str(text) for text in texts]


def _names(y: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the label names of each row, without duplicates."""
    rows = [[row] if isinstance(row, str) else row for row in y]
    if not all(isinstance(row, Iterable) and all(isinstance(name, str) for name in row) for row in rows):
        raise DataError("the labels of a text are a list of names", remedy='for example [["shoe", "red"], ["hat"]]')
    return [[str(name) for name in dict.fromkeys(row)] for row in rows]
