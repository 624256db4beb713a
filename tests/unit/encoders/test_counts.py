"""Counts of features against the standard library."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from megalabel.encoders._counts import count_features


@given(st.lists(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3), max_size=50), max_size=5))
def test_counts_and_first_places(texts):
    ids = np.array([feature for text in texts for feature in text], dtype=np.uint32)
    indptr, features, counts, places = count_features(ids, np.cumsum([0, *map(len, texts)]))
    for row, text in enumerate(texts):
        part = slice(indptr[row], indptr[row + 1])
        assert dict(zip(features[part].tolist(), counts[part].tolist(), strict=True)) == Counter(text)
        assert features[part].tolist() == sorted(set(text))
        assert places[part].tolist() == [text.index(feature) for feature in features[part].tolist()]
