"""A scikit-learn style classifier of raw texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.documents import inside
from megalabel.errors import DataError, MissingExtraError, SettingError

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn", extra="sklearn", what="MegalabelClassifier") from error

from megalabel.integrations._targets import Form, InputError, Targets, read_targets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.model import Model
    from megalabel.types import TopK

__all__ = ["EXPECTED_FAILED_CHECKS", "MegalabelClassifier"]

_NUMBERS = "X holds numbers, and it reads texts; passes if the numbers are written as words"
_SPARSE = "decision_function is sparse, with the k best labels of each text: all scores of a million labels do not fit"

#: The checks of :func:`sklearn.utils.estimator_checks.parametrize_with_checks` that fail, each with the reason. Those
#: of classifiers are run on a subclass with ``ClassifierMixin``.
EXPECTED_FAILED_CHECKS: dict[str, str] = dict.fromkeys(
    (
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_dtype_object",
        "check_estimators_dtypes",
        "check_estimators_fit_returns_self",
        "check_estimators_nan_inf",
        "check_estimators_overwrite_params",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_fit2d_predict1d",
        "check_fit_check_is_fitted",
        "check_fit_idempotent",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_n_features_in",
        "check_n_features_in_after_fitting",
        "check_pipeline_consistency",
        "check_positive_only_tag_during_fit",
        "check_readonly_memmap_input",
    ),
    _NUMBERS,
) | dict.fromkeys(
    (
        "check_classifiers_classes",
        "check_classifiers_multilabel_output_format_decision_function",
        "check_classifiers_train",
    ),
    _SPARSE,
)


class MegalabelClassifier(BaseEstimator):  # type: ignore[misc]
    """Classify raw texts into many labels: ``fit(texts, lists of label names)``, then ``predict(texts)``.

    Works in a ``Pipeline`` (as the last step, after steps that return texts), ``cross_val_score`` and
    ``GridSearchCV``, also with ``n_jobs``, ``clone`` and ``pickle``. As in every run, a part of the rows given to
    ``fit`` is held out to select on. It is not tagged as a scikit-learn classifier: scikit-learn has no target type
    for lists of names and would try to stratify them. Folds are plain ``KFold``.

    ``y`` is one of these, and ``predict`` gives the same:

    - a list of label names for each text;
    - an indicator matrix [n, L] of 0 and 1, dense or sparse; labels are the numbers of its columns, or the column
      names of a data frame;
    - one name (or number) for each text: ``predict`` gives the best, whatever ``k`` and ``threshold`` are;
    - with ``separator``, one string for each text with all its names: ``"red, shoe"``.

    Args:
        recipe: a name (see ``megalabel recipes``) or a YAML file.
        changes: changes to it, ``["training.epochs=3"]``.
        label_texts: label name -> text that describes it; by default the name itself. Labels that
            occur only here can be predicted too. Of an indicator matrix also a list, a text for each column.
        k: number of labels for each text.
        threshold: drop labels with a lower score; None always predicts k.
        separator: what stands between the names if ``y`` has one string for each text; None takes a string as a name.
        seed: random seed; overrides the recipe's.
        device: overrides the recipe's: auto, cpu, cuda, ...

    After ``fit``, ``classes_`` [L] holds the label names in the order of columns and ``model_``
    the :class:`megalabel.Model`. A pickle holds the files of the saved model, as bytes.

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
        label_texts: Mapping[str, str] | Sequence[str] | None = None,
        k: int = 5,
        threshold: float | None = None,
        separator: str | None = None,
        seed: int = 0,
        device: str | None = None,
    ) -> None:
        self.recipe = recipe
        self.changes = changes
        self.label_texts = label_texts
        self.k = k
        self.threshold = threshold
        self.separator = separator
        self.seed = seed
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their labels.

        ``X`` is a list, array or column of texts; several columns of texts are joined by a space.
        """
        from megalabel.trainer import train

        targets, label_texts = read_targets(y, self.separator).described(self.label_texts)
        texts = self._texts(X, reset=True)
        _check_lengths(texts, targets)
        if len(texts) < 2:
            what = f"n_samples={len(texts)}, and a part of the texts is held out to select on"
            raise InputError(what, remedy="give at least 2 texts")
        split = Split(texts, targets.relevant, [f"row-{i}" for i in range(len(texts))])
        labels = Labels(label_texts, [str(name) for name in targets.form.classes])
        data = Dataset(split, split, labels, name="sklearn")  # the test split is not used: training reads train only
        try:
            model = train(self.recipe, data, changes=list(self.changes), seed=self.seed, device=self.device)
        except DataError as error:
            raise InputError(error.what, remedy=error.remedy) from error
        self.model_: Model = model
        self._form: Form = targets.form
        self.classes_ = targets.form.classes
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels of each text, written as ``y`` was; lists and joined names have the best label first."""
        check_is_fitted(self, "model_")
        single = self._form.kind == "column"
        best = self._search(X, 1 if single else self.k)
        threshold = -np.inf if self.threshold is None or single else self.threshold
        kept = (best.ids >= 0) & (best.scores >= threshold)
        return self._form.written([ids[keep].tolist() for ids, keep in zip(best.ids, kept, strict=True)])

    def decision_function(self, X: Any) -> sparse.csr_matrix:
        """Return the scores of the k best labels of each text, sparse [n, L]; a missing cell does not mean 0."""
        best = self._search(X, self.k)
        kept = best.ids >= 0
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        shape = (len(best.ids), len(self.classes_))
        return sparse.csr_matrix((best.scores[kept], best.ids[kept], indptr), shape=shape)

    @available_if(lambda self: self._has_probabilities())  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> sparse.csr_matrix:
        """Return the probabilities of the k best labels of each text, sparse [n, L]; for fused recipes such as auto."""
        return self.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the share of texts whose best label is correct (P@1, 0 to 1)."""
        best = self._search(X, 1).ids[:, 0]
        right = read_targets(y, self.separator)
        _check_lengths(best, right)
        place = {name: column for column, name in enumerate(right.form.classes.tolist())}
        columns = [-1 if label < 0 else place.get(self.classes_[label], -1) for label in best]
        return float(np.mean([column >= 0 and right.relevant[row, column] for row, column in enumerate(columns)]))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: plain values, and the model as the bytes of the files it is saved as."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "model_" in state:
            with TemporaryDirectory() as place:
                state["model_"].save(Path(place) / "model")
                home = Path(place) / "model"
                files = sorted(path for path in home.rglob("*") if path.is_file())
                state["model_"] = {path.relative_to(home).as_posix(): path.read_bytes() for path in files}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Load the model from the bytes of its files, every file checked as :meth:`megalabel.Model.load` does."""
        from megalabel.model import Model

        files = state.get("model_")
        super().__setstate__({name: value for name, value in state.items() if name != "model_"})
        if files is None:
            return
        with TemporaryDirectory() as place:
            home = Path(place) / "model"
            for name, content in files.items():
                path = inside(home, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.model_ = Model.load(home, device=self.device or "auto")

    def _search(self, X: Any, k: int) -> TopK:
        check_is_fitted(self, "model_")
        if k < 1:
            raise SettingError(f"k is {k}", remedy="give at least 1")
        return self.model_.search(self._texts(X), min(k, len(self.classes_)))

    def _has_probabilities(self) -> bool:
        """Whether the scores of the fitted model are probabilities."""
        model = getattr(self, "model_", None)
        return model is not None and model.fusion is not None and model.tail == 0

    def _texts(self, X: Any, *, reset: bool = False) -> list[str]:
        """Return the texts as a list; the columns of a frame or matrix are those of ``fit``, or are set by it."""
        if reset:
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
        rows = _rows(X)
        columns = getattr(self, "n_features_in_", 1)
        if isinstance(rows, np.ndarray):
            validate_data(self, X, reset=reset, skip_check_array=True)
        elif columns > 1:
            what = f"X has one text in a row, but fit had {columns} columns"
            raise InputError(what, remedy="Reshape your data: give a matrix or frame with the same columns")
        cells = [list(row) for row in rows] if isinstance(rows, np.ndarray) else [[text] for text in rows]
        for number, row in enumerate(cells):
            odd = next((cell for cell in row if not isinstance(cell, str)), None)
            if odd is not None:
                kind = str(odd) if isinstance(odd, float) and not np.isfinite(odd) else type(odd).__name__
                what = f"expected a text, not {kind.replace('nan', 'NaN')}, in row {number}"
                raise InputError(what, remedy="give raw texts, one string each")
        return [" ".join(map(str, row)) for row in cells]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags


def _rows(X: Any) -> list[Any] | NDArray[Any]:
    """Return one column of texts as a list, several as a matrix [n, columns]."""
    if isinstance(X, str):
        raise SettingError("give a list of texts, not one text", remedy='for example predict(["some text"])')
    if sparse.issparse(X):
        raise InputError("X is a sparse matrix", remedy="give raw texts, one string each")
    rows = np.asarray(X) if hasattr(X, "__array__") else list(X)
    if isinstance(rows, list):
        return rows
    if rows.dtype.kind == "c":
        raise InputError("Complex data not supported", remedy="give raw texts, one string each")
    if rows.ndim == 2 and rows.shape[1] == 0:
        what = f"Found array with 0 feature(s) (shape={rows.shape}) while a minimum of 1 is required"
        raise InputError(what, remedy="give at least one column of texts")
    if rows.ndim > 2:
        raise InputError(f"X has {rows.ndim} dimensions", remedy="give raw texts, one string each")
    return rows if rows.ndim == 2 else list(rows)


def _check_lengths(texts: Sequence[Any] | NDArray[Any], targets: Targets) -> None:
    if len(texts) != len(targets):
        raise InputError(f"there are {len(texts):,} texts but {len(targets):,} lists of labels")
