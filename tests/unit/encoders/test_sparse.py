"""Sparse rows against tf-idf counted by hand."""

from collections import Counter

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.encoders import SparseEncoder
from megalabel.encoders import sparse as module
from megalabel.errors import DataError, SettingError

SMALL = {"words": 512, "bigrams": 512, "characters": 512}
WORDS = st.lists(st.sampled_from(["red", "shoe", "hat", "a", "blue", "shoes,", "(x)"]), max_size=8).map(" ".join)


def by_hand(encoder, texts, asked):
    """Tf-idf of each asked text as a dictionary of column to weight."""
    features = [encoder.features.tokenise([text]).ids.tolist() for text in texts]
    seen = Counter(t for row in features for t in set(row))
    n = len(texts)
    kinds = np.repeat(encoder.weights, [encoder.words, encoder.bigrams, encoder.characters])
    for text in asked:
        row = {}
        for t, count in Counter(encoder.features.tokenise([text]).ids.tolist()).items():
            if seen[t] >= encoder.min_df:
                tf = 1 + np.log(count) if encoder.sublinear else count
                row[t] = kinds[t] * tf * (1 + np.log((n + 1) / (seen[t] + 1)))
        norm = np.sqrt(sum(value**2 for value in row.values()))
        yield {t: value / norm for t, value in row.items()}


@settings(max_examples=40)
@given(st.lists(WORDS, min_size=1, max_size=6), st.lists(WORDS, max_size=4), st.booleans(), st.sampled_from([1, 2]))
def test_rows_are_tf_idf_of_length_one(texts, asked, sublinear, min_df):
    encoder = SparseEncoder(**SMALL, weights=(1, 0.5, 0.25), sublinear=sublinear, min_df=min_df).fit(texts)
    rows = encoder.encode(asked)
    assert rows.shape == (len(asked), 1536) and rows.dtype == np.float32
    assert rows.has_canonical_format and rows.has_sorted_indices
    for i, expected in enumerate(by_hand(encoder, texts, asked)):
        row = rows[i]
        assert row.indices.tolist() == sorted(expected)
        np.testing.assert_allclose(row.data, [expected[t] for t in sorted(expected)], rtol=1e-5)
        if expected:
            assert np.linalg.norm(row.data) == pytest.approx(1, abs=1e-6)


def test_features_never_seen_have_no_weight():
    encoder = SparseEncoder(words=2**12, bigrams=0, characters=0).fit(["red shoe", "red hat"])
    assert encoder.encode(["unknown"]).nnz == 0
    assert encoder.encode(["red unknown"]).data.tolist() == [1.0]
    rare = SparseEncoder(words=2**12, bigrams=0, characters=0, min_df=2).fit(["red shoe", "red hat"])
    assert rare.encode(["red shoe hat"]).nnz == 1


def test_empty_texts_give_empty_rows():
    rows = SparseEncoder(**SMALL).fit(["red shoe"]).encode(["", "red", "  ", "..."])
    assert (rows.getnnz(axis=1) > 0).tolist() == [False, True, False, False]


def test_chunks_and_tokens_make_no_difference(monkeypatch):
    texts = [f"word{i % 7} shoe {i}" for i in range(30)]
    whole = SparseEncoder(**SMALL).fit(texts)
    rows = whole.encode(texts)
    tokens = whole.tokenise(texts)
    monkeypatch.setattr(module, "_CHUNK", 7)
    parts = SparseEncoder(**SMALL).fit(tokens)
    assert np.array_equal(whole.idf_, parts.idf_)
    for other in (parts.encode(texts), parts.encode(tokens)):
        assert np.array_equal(rows.indices, other.indices) and np.array_equal(rows.data, other.data)


def test_save_and_load(tmp_path):
    encoder = SparseEncoder(**SMALL, ngrams=[2, 3], weights=[1, 0.7, 0.3], min_df=1).fit(["red shoe", "blue hat"])
    encoder.save(tmp_path / "sparse")
    again = SparseEncoder.load(tmp_path / "sparse")
    assert again.config() == encoder.config() == orjson.loads(orjson.dumps(encoder.config()))
    assert repr(again) == repr(encoder) and again.fingerprint() == encoder.fingerprint()
    assert np.array_equal(again.idf_, encoder.idf_)
    one, other = encoder.encode(["blue shoe"]), again.encode(["blue shoe"])
    assert np.array_equal(one.data, other.data) and np.array_equal(one.indices, other.indices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": 100}, "words is 100; give a power of two such as 128"),
        ({"words": 0, "bigrams": 0, "characters": 0}, "there are no features"),
        ({"ngrams": []}, "ngrams is"),
        ({"weights": [1, 1]}, "weights is"),
        ({"weights": [1, 0, 1]}, "give three numbers above 0"),
        ({"min_df": 0}, "min_df must be at least 1, not 0"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(SettingError, match=message):
        SparseEncoder(**SMALL | change)


def test_bad_use(tmp_path):
    encoder = SparseEncoder(**SMALL)
    with pytest.raises(SettingError, match="call fit"):
        encoder.encode(["red"])
    with pytest.raises(SettingError, match="call fit"):
        encoder.save(tmp_path / "x")
    with pytest.raises(DataError, match="no texts"):
        encoder.fit([])
    with pytest.raises(DataError, match="no such folder"):
        SparseEncoder.load(tmp_path / "nowhere")


def test_damaged_folders_give_one_line(tmp_path):
    folder = tmp_path / "sparse"
    SparseEncoder(**SMALL).fit(["red"]).save(folder)
    settings = folder / "sparse.json"
    good = settings.read_bytes()
    for bad, error, message in [
        (b"{", DataError, "cannot be read"),
        (b'{"kind": "bag"}', DataError, "not the settings of 'sparse'"),
        (good.replace(b'"min_df"', b'"min_dff"'), SettingError, "did you mean 'min_df'"),
        (good.replace(b"512", b"1024", 1), DataError, "the settings must be those"),
    ]:
        settings.write_bytes(bad)
        with pytest.raises(error, match=message) as caught:
            SparseEncoder.load(folder)
        assert "\n" not in str(caught.value) and "sparse" in str(caught.value)
    settings.write_bytes(good)
    (folder / "sparse.safetensors").write_bytes(b"x")
    with pytest.raises(DataError, match="weights cannot be read"):
        SparseEncoder.load(folder)
    (folder / "sparse.safetensors").unlink()
    with pytest.raises(DataError, match="no such file"):
        SparseEncoder.load(folder)
