"""The checks of scikit-learn itself: on the classifier, and on one that reads their numbers as words."""

import numpy as np
import pytest
from sklearn.base import ClassifierMixin
from sklearn.utils.estimator_checks import parametrize_with_checks

from megalabel.integrations.sklearn import EXPECTED_FAILED_CHECKS, MegalabelClassifier

CHANGES = (
    "encoder.source=null",
    "encoder.options={dim: 16, words: 256, bigrams: 0, characters: 0}",
    "batching.batch_size=8",
    "training.epochs=1",
)


class OfNumbers(ClassifierMixin, MegalabelClassifier):
    """Reads numbers as words, and is tagged as the classifier that it is if a text has one name."""

    def _texts(self, X, *, reset=False):
        return super()._texts(in_words(X), reset=reset)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def in_words(X):
    """Return a matrix of finite numbers as one of words, a word for each half; anything else as it is."""
    if hasattr(X, "tocsr"):
        return X
    array = np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "iufbO" or not np.isfinite(array.astype(float)).all():
        return X
    words = [[f"c{column}v{int(np.floor(2 * value))}" for column, value in enumerate(row)] for row in array]
    cells = np.array(words, dtype=object).reshape(array.shape)
    return type(X)(cells, columns=X.columns) if hasattr(X, "columns") else cells


@parametrize_with_checks(
    [MegalabelClassifier("unidec-cpu", changes=CHANGES)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS,
    xfail_strict=True,
)
def test_checks(estimator, check):
    check(estimator)


@pytest.mark.extra
@parametrize_with_checks(
    [OfNumbers("unidec-cpu", changes=CHANGES, k=2)],
    expected_failed_checks=lambda estimator: {
        name: reason for name, reason in EXPECTED_FAILED_CHECKS.items() if reason.startswith("decision_function")
    },
    xfail_strict=True,
)
def test_checks_in_words(estimator, check):
    check(estimator)
