"""What a model answers where there is nothing to answer."""

import numpy as np
import pytest

from megalabel.errors import DataError


def test_an_empty_text_has_no_labels_by_any_head(model, data):
    texts = ["", data.test.texts[0], " \t\n"]
    for heads in ("all", *model.heads):
        assert [len(row) for row in model.predict(texts, 3, heads=heads)] == [0, 3, 0]
    top, scores = model.search_with_head_scores(texts, 3)
    assert (top.ids[[0, 2]] == -1).all() and np.isneginf(top.scores[[0, 2]]).all() and (top.ids[1] >= 0).all()
    assert set(scores) == set(model.heads)
    assert model.predict([], 3) == []


def test_an_empty_text_is_explained_for_a_named_label_only(model):
    with pytest.raises(DataError, match="the text is empty"):
        model.explain(" ")
    assert model.explain("", model.labels.uids[0]).uid == model.labels.uids[0]
