"""Training texts round-trip through disk."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.model.train_rows import TrainRows


@settings(max_examples=30)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=6), st.integers(0, 99))
def test_saved_and_loaded(tmp_path_factory, texts, seed):
    cells = np.random.default_rng(seed).random((len(texts), 3)) < 0.5
    rows = TrainRows(texts, sparse.csr_matrix(cells, dtype=np.float32))
    folder = tmp_path_factory.mktemp("rows") / "train"
    rows.save(folder)
    again = TrainRows.load(folder)
    assert list(again.texts) == texts
    assert again.texts[1:] == texts[1:]
    assert again.texts[-1] == texts[-1]
    assert np.array_equal(again.targets.toarray(), cells)
    for label in range(3):
        assert again.rows_of(label).tolist() == np.flatnonzero(cells[:, label]).tolist()
