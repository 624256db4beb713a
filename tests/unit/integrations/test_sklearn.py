"""MegalabelClassifier works with the tools of scikit-learn."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
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
        (["red", "blue"], [["red"], None], "list of names"),
        (["red", "blue"], [["red"], "blue"], "y.1. is 'blue'"),
        (["red", "blue"], [[1, 2], [0, 1]], "no indicator matrix"),
        (["red", "blue"], [0.5, 1.25], "Unknown label type"),
        (["red", "blue"], None, "y is None"),
        (["red", float("nan")], [["red"], ["red"]], "not NaN, in row 1"),
        (["red"], [["red"]], "give at least 2 texts"),
        (np.array([["red"]] * 2)[:, :0], [["red"]] * 2, "0 feature"),
    ],
)
def test_wrong_input(X, y, message):
    with pytest.raises((DataError, SettingError), match=message):
        make().fit(X, y)


@pytest.fixture(scope="module")
def matrix():
    """The labels as an indicator matrix, and their names by column."""
    names = sorted(COLOURS + THINGS)
    return np.array([[name in row for name in names] for row in NAMES]).astype(int), names


def test_an_indicator_matrix(matrix):
    y, names = matrix
    classifier = make(label_texts=names).fit(TEXTS, y)
    actual = classifier.predict(["blue hat"])
    assert isinstance(actual, np.ndarray) and actual.dtype == y.dtype
    assert actual.tolist() == [[int(name in ("blue", "hat")) for name in names]]
    assert classifier.classes_.tolist() == list(range(6)) and classifier.model_.labels.texts == names
    assert classifier.score(TEXTS, y) == classifier.score(TEXTS, sparse.csr_matrix(y)) == 1


def test_a_column_of_joined_names():
    joined = [", ".join(row) for row in NAMES]
    classifier = make(separator=",").fit(TEXTS, joined)
    assert classifier.classes_.tolist() == sorted(COLOURS + THINGS)
    assert sorted(classifier.predict(["blue hat"])[0].split(", ")) == ["blue", "hat"]
    assert classifier.score(TEXTS, joined) == 1


def test_a_pickle_holds_the_files_of_the_model(fitted):
    classifier = clone_fitted(fitted, threshold=0.25)
    state = classifier.__getstate__()
    assert all(isinstance(content, bytes) for content in state["model_"].values())
    assert {"model.json", "recipe.yaml", "heads.safetensors"} <= set(state["model_"])
    again = pickle.loads(pickle.dumps(classifier))
    assert again.get_params() == classifier.get_params() and again.threshold == 0.25
    assert (again.decision_function(TEXTS[:9]) != classifier.decision_function(TEXTS[:9])).nnz == 0
    assert again.model_.train_rows is not None
    assert not hasattr(pickle.loads(pickle.dumps(make())), "model_")


def test_a_pickle_is_checked_as_a_saved_model_is(fitted):
    state = fitted.__getstate__()
    weights = bytearray(state["model_"]["heads.safetensors"])
    weights[-1] ^= 1
    with pytest.raises(DataError, match="changed after it was saved"):
        make().__setstate__(state | {"model_": state["model_"] | {"heads.safetensors": bytes(weights)}})
    with pytest.raises(DataError, match="not the name of a file in this folder"):
        make().__setstate__(state | {"model_": {"../../stolen": b""}})


@pytest.mark.extra
def test_several_jobs(matrix):
    y, names = matrix
    search = GridSearchCV(make(label_texts=names), {"k": [1, 2]}, cv=2, n_jobs=2, scoring="f1_micro").fit(TEXTS, y)
    assert search.best_params_ == {"k": 2} and search.best_score_ > 0.9
    folds = cross_validate(make(), TEXTS, NAMES, cv=2, n_jobs=2, return_estimator=True)
    assert min(folds["test_score"]) > 0.9
    assert sorted(folds["estimator"][0].predict(["blue hat"])[0]) == ["blue", "hat"]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_several_columns_of_texts():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(NAMES, columns=["colour", "thing"])
    classifier = make().fit(frame, NAMES)
    assert classifier.n_features_in_ == 2 and classifier.feature_names_in_.tolist() == ["colour", "thing"]
    assert sorted(classifier.predict(frame.iloc[:1])[0]) == sorted(NAMES[0])
    with pytest.raises(DataError, match="fit had 2 columns"):
        classifier.predict(["blue hat"])
    with pytest.raises(ValueError, match="1 features, but MegalabelClassifier is expecting 2"):
        classifier.predict(frame[["colour"]].to_numpy())


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"separator": ""}, ["a", "b"], "separator is empty"),
        ({"separator": ","}, [["a"], ["b"]], "separator is for a column of strings"),
        ({"separator": ","}, [[0, 1], [1, 1]], "separator is for a column of strings"),
        ({"label_texts": ["one"]}, [[0, 1], [1, 1]], "1 texts without names, for 2 labels"),
        ({"label_texts": {7: "seven"}}, [[0, 1], [1, 1]], "'7', which is no column"),
    ],
)
def test_settings_that_do_not_fit_y(settings, y, message):
    with pytest.raises(DataError, match=message):
        make(**settings).fit(["red", "blue"], y)


def test_without_the_package():
    code = "import sys; sys.modules['sklearn'] = None\nimport megalabel.integrations.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'megalabel[sklearn]'" in done.stderr
