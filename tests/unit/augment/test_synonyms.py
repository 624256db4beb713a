import numpy as np
import pytest

from megalabel.augment import synonyms
from megalabel.data import Dataset, Split
from megalabel.errors import DataError, SettingError

WORDS = ["big", "large", "shoe", "boot", "red", "##ing", "[UNK]", "at", "crimson"]
TABLE = np.array(
    [[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.1], [0, 0, 1], [1, 0, 0.01], [0, 1, 0.01], [0, 0, 1], [0, 0, 0.5]],
    dtype=np.float32,
)


@pytest.fixture
def data():
    rows = [("Big red shoe", [0, 1]), ("42 at-x", [1]), ("BOOTS; boot!", [0])]
    plain = Dataset.from_lists(rows, [("t", [0])], ["A", "B"])
    return plain.replace(train=Split(plain.train.texts, plain.train.targets, plain.train.uids, np.array([[2, 1]])))


def test_words_are_exchanged_for_their_nearest(data):
    more = synonyms(data, TABLE, WORDS, words=1.0, top=1)
    assert more.train.texts[3:] == ["Large crimson boot", "BOOTS; shoe!"]  # no piece, no sign, no short word
    assert more.train.texts[:3] == data.train.texts
    assert more.train.targets[3:].toarray().tolist() == [[1, 1], [1, 0]]
    assert more.train.filter.tolist() == [[2, 1], [4, 1]]
    assert more.train.uids[3:] == ["synonyms:0", "synonyms:2"]
    assert more.counts is data.counts
    assert more.test is data.test


def test_share_of_words(data):
    long = Dataset.from_lists([("red " * 50, [0])], [("t", [0])], ["A"])
    text = synonyms(long, TABLE, WORDS, words=0.2, top=1).train.texts[1]
    assert text.split().count("crimson") == 10
    few = synonyms(data, TABLE, WORDS, words=0.01, top=1).train.texts[3]
    assert sum(a != b for a, b in zip(few.split(), ["Big", "red", "shoe"], strict=True)) == 1


def test_replacements_are_drawn_among_the_nearest(data):
    texts = {synonyms(data, TABLE, WORDS, words=1.0, top=9, seed=seed).train.texts[4] for seed in range(60)}
    assert texts == {f"BOOTS; {word}!" for word in ("big", "large", "shoe", "red", "crimson")}


def test_nearest_by_brute_force():
    rng = np.random.default_rng(0)
    vocabulary = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)]
    table = rng.standard_normal((300, 8)).astype(np.float32)
    data = Dataset.from_lists([(word, [0]) for word in vocabulary], [("t", [0])], ["A"])
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    expected = [vocabulary[i] for i in cosines.argmax(1)]
    assert synonyms(data, table, vocabulary, top=1).train.texts[300:] == expected


@pytest.mark.parametrize(("options", "words"), [({"words": 0}, "words"), ({"top": 0}, "top"), ({"share": 0}, "share")])
def test_wrong_settings(data, options, words):
    with pytest.raises(SettingError, match=words):
        synonyms(data, TABLE, WORDS, **options)


def test_wrong_tables(data):
    with pytest.raises(DataError, match="9 vectors but 8 tokens"):
        synonyms(data, TABLE, WORDS[:-1])
    with pytest.raises(DataError, match="no word"):
        synonyms(data, TABLE[:2], ["chien", "chat"])
