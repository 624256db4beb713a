"""MegalabelClassifier works with the tools of scikit-learn."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from megalabel.errors import DataError, SettingError
from megalabel.integrations.sklearn import MegalabelClassifier

SMALL = ["encoder.source=null", "encoder.options={dim: 16, words: 256, bigrams: 0, characters: 0}"]
SMALL += ["batching.batch_size=16", "training.epochs=12"]
COLOURS, THINGS = ["red", "blue", "green"], ["shoe", "hat", "coat"]
TEXTS = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS] * 8
NAMES = [text.split() for text in TEXTS]


def make(**settings):
    return MegalabelClassifier("unidec-cpu", **({"changes": SMALL, "k": 2} | settings))


@pytest.fixture(scope="module")
def fitted():
    return make().fit(TEXTS, NAMES)


def test_learns(fitted):
    assert fitted.classes_.tolist() == sorted(COLOURS + THINGS)
    assert [sorted(row) for row in fitted.predict(["blue hat", "coat, red"])] == [["blue", "hat"], ["coat", "red"]]
    assert fitted.score(TEXTS, NAMES) == 1
    assert fitted.score(TEXTS[:2], [["hat"], ["unknown"]]) <= 0.5


def test_scores_are_sparse_and_of_the_best(fitted):
    texts = ["blue hat", "green"]
    scores = fitted.decision_function(texts)
    assert scores.shape == (2, 6) and np.diff(scores.indptr).tolist() == [2, 2]
    for row, names in enumerate(fitted.predict(texts)):
        ids, values = scores[row].indices, scores[row].data
        assert fitted.classes_[ids[np.argsort(-values)]].tolist() == names
    assert not hasattr(fitted, "predict_proba")  # these scores are cosines


def test_threshold_and_k(fitted):
    assert [len(row) for row in clone_fitted(fitted, k=4).predict(["red", "hat"])] == [4, 4]
    assert [len(row) for row in clone_fitted(fitted, k=99).predict(["red"])] == [6]
    assert clone_fitted(fitted, threshold=1e9).predict(["red"])[0] == []
    with pytest.raises(SettingError, match="k is 0"):
        clone_fitted(fitted, k=0).predict(["red"])


def clone_fitted(fitted, **settings):
    other = clone(fitted).set_params(**settings)
    other.__dict__ |= {name: value for name, value in vars(fitted).items() if name not in fitted.get_params()}
    return other


def test_auto_has_probabilities():
    classifier = MegalabelClassifier(changes=[*SMALL, "heads.linear.rounds=1"], k=3).fit(TEXTS, NAMES)
    actual = classifier.predict_proba(["blue shoe"])
    assert actual.shape == (1, 6) and actual.nnz == 3
    assert actual.data.min() >= 0 and actual.data.max() <= 1
    assert {"blue", "shoe"} <= set(classifier.predict(["blue shoe"])[0])


def test_parameters_and_clone():
    texts = {"hat": "something worn on the head"}
    classifier = make(label_texts=texts, seed=3)
    assert classifier.get_params()["label_texts"] is texts
    other = clone(classifier)
    assert other.get_params() == classifier.get_params() and not hasattr(other, "model_")
    assert other.set_params(k=7).k == 7
    with pytest.raises(NotFittedError):
        other.predict(["red"])
    with pytest.raises(ValueError, match="Invalid parameter"):
        other.set_params(no_such=1)


def test_same_seed_same_scores(fitted):
    again = clone(fitted).fit(TEXTS, NAMES)
    assert (again.decision_function(["blue"]) != fitted.decision_function(["blue"])).nnz == 0


def test_in_the_tools_of_scikit_learn():
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, make())
    loud = [text.upper() for text in TEXTS]
    assert min(cross_val_score(pipeline, loud, NAMES, cv=2)) > 0.9
    assert len(cross_val_predict(pipeline, loud, NAMES, cv=2)) == len(loud)
    blind = [*SMALL, "encoder.options={dim: 2, words: 2, bigrams: 0, characters: 0}", "training.epochs=1"]
    search = GridSearchCV(make(), {"changes": [blind, SMALL]}, cv=2).fit(TEXTS, NAMES)
    assert search.best_params_["changes"] == SMALL
    assert search.best_score_ > 0.9


def test_labels_that_only_have_a_text():
    classifier = make(label_texts={"unseen": "violet scarf", "hat": "hat worn on the head"}).fit(TEXTS, NAMES)
    model = classifier.model_
    assert model.labels.texts[model.labels.uids.index("hat")] == "hat worn on the head"
    assert model.labels.texts[model.labels.uids.index("red")] == "red"
    assert "unseen" in classifier.predict(["violet scarf"])[0]


def test_one_name_a_text_and_arrays_and_frames():
    import pandas

    frame = pandas.DataFrame({"text": TEXTS, "colour": [row[0] for row in NAMES]})
    classifier = make(k=1).fit(frame["text"], frame["colour"])
    assert classifier.score(frame["text"].to_numpy(), frame["colour"].to_numpy()) == 1


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ("red", [["red"]], "not one text"),
        (["red", 3], [["red"], ["red"]], "not int"),
        (["red"], [["red"], ["blue"]], "1 texts but 2 lists"),
        (["red"], [[1]], "list of names"),
        (["red"], [7], "list of names"),
    ],
)
def test_wrong_input(X, y, message):
    with pytest.raises((DataError, SettingError), match=message):
        make().fit(X, y)


def test_without_the_package():
    code = "import sys; sys.modules['sklearn'] = None\nimport megalabel.integrations.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'megalabel[sklearn]'" in done.stderr
