"""Explanations agree with the model and the data."""

from collections import Counter

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError, SettingError


def test_contributions_sum_to_the_ranking_value(model, data):
    for text in data.test.texts[:5]:
        best = model.predict([text], 3)[0]
        for rank, prediction in enumerate(best, start=1):
            actual = model.explain(text, prediction.uid)
            assert (actual.rank, actual.id, actual.label) == (rank, prediction.id, prediction.text)
            assert [part.head for part in actual.heads] == model.heads
            assert actual.total == pytest.approx(actual.rest + sum(part.adds for part in actual.heads), abs=1e-6)
            value = actual.total if model.fusion is None else actual.probability
            assert value == pytest.approx(prediction.score, abs=1e-5)
        assert model.explain(text).uid == best[0].uid


def test_training_texts_and_related_labels_are_those_of_the_data(model, data):
    text = data.test.texts[0]
    actual = model.explain(text, k=4)
    rows = np.flatnonzero(data.train.targets[:, actual.id].toarray()[:, 0])
    carrying = {data.train.texts[row] for row in rows}
    assert actual.points == len(rows)
    assert actual.frequency == ("head" if len(rows) > 100 else "torso" if len(rows) >= 10 else "tail")
    assert len(actual.nearest) == min(4, len(rows))
    assert {near.text for near in actual.nearest} <= carrying
    cosines = [near.similarity for near in actual.nearest]
    assert cosines == sorted(cosines, reverse=True)
    others = Counter(other for row in rows for other in data.train.targets[row].indices if other != actual.id)
    for related in actual.related:
        label = data.labels.uids.index(related.uid)
        assert related.together == others[label]
        assert related.share == pytest.approx(others[label] / len(rows))
    assert [one.together for one in actual.related] == sorted(others.values(), reverse=True)[:4]


def test_a_training_text_is_nearest_to_itself(model, data):
    row = int(np.flatnonzero(np.diff(data.train.targets.indptr))[0])
    uid = data.labels.uids[data.train.targets[row].indices[0]]
    near = model.explain(data.train.texts[row], uid, k=1).nearest[0]
    assert near.similarity == pytest.approx(1, abs=1e-5)


def test_a_label_added_later_has_only_its_text(model, tmp_path):
    model.add_labels(["zebra crossing"], ["z"])
    model.save(tmp_path / "copy")
    for one in (model, ml.Model.load(tmp_path / "copy")):
        actual = one.explain("zebra crossing", "z")
        assert (actual.added, actual.points, actual.frequency) == (True, 0, "unseen")
        assert actual.nearest == actual.related == []
        assert actual.texts_kept


def test_removed_labels_are_not_listed(model, data):
    text = data.test.texts[0]
    actual = model.explain(text, k=60)
    model.remove_labels([actual.related[0].uid])
    assert actual.related[0].uid not in {one.uid for one in model.explain(text, actual.uid, k=60).related}


def test_texts_can_be_left_out(model, data, tmp_path):
    model.save(tmp_path / "bare", texts=False)
    assert not (tmp_path / "bare" / "train").exists()
    actual = ml.Model.load(tmp_path / "bare").explain(data.test.texts[0])
    assert not actual.texts_kept
    assert actual.nearest == actual.related == []
    assert actual.points > 0


def test_texts_that_changed_on_disk_are_refused(model, data, tmp_path):
    model.save(tmp_path / "copy")
    again = ml.Model.load(tmp_path / "copy")
    path = tmp_path / "copy" / "train" / "train.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="changed after it was saved"):
        again.explain(data.test.texts[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a list"],), "give one text"),
        (("text", "nobody"), "no label has the uid"),
        (("text", None, 0), "k must be at least 1"),
    ],
)
def test_mistakes(model, arguments, message):
    with pytest.raises((DataError, SettingError), match=message):
        model.explain(*arguments)
