import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.heads import Overlap

TRAIN = ["a beam made of steel", "a piece of wood", "the thing"]
LABELS = ["beam: long thick piece of wood", "steel", "wood, timber", "nothing here", ""]


def by_hand(overlap, query, label):
    """The formula, word by word."""
    from megalabel.encoders._features import Features

    features = Features(None, words=overlap.words, bigrams=0, characters=0, ngrams=[1])
    words = [features.tokenise([text]).ids.tolist() for text in (query, label)]
    whole, other = words if overlap.side == "query" else reversed(words)
    first = {}
    for place, word in enumerate(whole):
        first.setdefault(word, overlap.idf_[word] * 2 ** (-place / overlap.half_life))
    return sum(value for word, value in first.items() if word in other) / (sum(first.values()) or 1)


@pytest.mark.parametrize("side", ["label", "query"])
@pytest.mark.parametrize("half_life", [0.5, 3.0])
def test_scores_are_the_formula(side, half_life):
    overlap = Overlap(side=side, half_life=half_life).fit(TRAIN, LABELS)
    queries = ["girder: a beam of steel", "wood", "", "Timber and BEAM, beam"]
    candidates = np.tile(np.arange(len(LABELS)), (len(queries), 1))
    expected = [[by_hand(overlap, query, label) for label in LABELS] for query in queries]
    np.testing.assert_allclose(overlap.scores(queries, candidates), expected, rtol=1e-5)


def test_scores_are_shares_of_one_side():
    named = Overlap(side="label").fit(TRAIN, LABELS).scores(["a bar of steel"], np.array([[1, 0, -1]]))
    assert named[0, 0] == pytest.approx(1)  # all of the label stands in the query
    assert 0 < named[0, 1] < 0.2  # of the other only "of"
    assert named[0, 2] == -np.inf
    naming = Overlap(side="query").fit(TRAIN, LABELS).scores(["wood"], np.array([[0, 2, 1]]))
    np.testing.assert_allclose(naming, [[1, 1, 0]])


@given(
    st.lists(st.text("ab c:", max_size=12), min_size=1, max_size=5),
    st.integers(1, 7),
    st.sampled_from(["label", "query"]),
)
def test_search_finds_the_best_of_the_scores(queries, k, side):
    overlap = Overlap(side=side, words=64).fit(["a b", "b ab"], ["a", "b a", "ab: c", "c c b", "cab"])
    actual = overlap.search(queries, k)
    scores = overlap.scores(queries, np.tile(np.arange(5), (len(queries), 1)))
    assert (scores >= 0).all()
    assert (scores <= 1 + 1e-6).all()
    for row, score in enumerate(scores):
        order = [label for label in np.lexsort((np.arange(5), -score)) if score[label] > 0][:k]
        assert actual.ids[row].tolist() == order + [-1] * (k - len(order))
        np.testing.assert_array_equal(actual.scores[row, : len(order)], score[order])


def test_excluded_pairs_are_left_out():
    overlap = Overlap().fit(TRAIN, LABELS)
    out = sparse.csr_matrix(([1.0], ([0], [1])), shape=(1, len(LABELS)))
    assert overlap.search(["steel beam"], 2, out).ids.tolist() == [[0, -1]]


def test_saved_and_loaded(tmp_path):
    overlap = Overlap(side="query", half_life=5.0, words=1024).fit(TRAIN, LABELS)
    overlap.save(tmp_path / "part")
    again = Overlap.load(tmp_path / "part")
    assert repr(again) == repr(overlap)
    queries, candidates = ["girder: a beam of steel"], np.array([[0, 1, 2, 3]])
    np.testing.assert_array_equal(again.scores(queries, candidates), overlap.scores(queries, candidates))


@pytest.mark.parametrize(
    ("settings", "what"), [({"side": "both"}, "side"), ({"half_life": 0}, "half_life"), ({"words": 100}, "words")]
)
def test_invalid_settings(settings, what):
    with pytest.raises(SettingError, match=what):
        Overlap(**settings).fit(TRAIN, LABELS)


def test_mistakes():
    with pytest.raises(DataError, match="no labels"):
        Overlap().fit(TRAIN, [])
    with pytest.raises(SettingError, match="call fit"):
        Overlap().search(["a"], 1)
    overlap = Overlap().fit(TRAIN, LABELS)
    with pytest.raises(SettingError, match="k must be"):
        overlap.search(["a"], 0)
    with pytest.raises(DataError, match="one row for each query"):
        overlap.scores(["a"], np.array([[0], [1]]))
    with pytest.raises(DataError, match="lie in"):
        overlap.scores(["a"], np.array([[5]]))
