import numpy as np

from megalabel.model.snapshot import Snapshot


def test_a_snapshot_stays_consistent_under_changes(model):
    before = Snapshot.of(model)
    (uid,) = model.add_labels(["brand new thing"])
    gone = model.labels.uids[3]
    model.remove_labels([gone])
    after = Snapshot.of(model)
    assert before.search(["brand new thing"], 100).ids.max() < 60
    assert (before.known(uid), after.known(uid)) == (None, 60)
    assert (before.known(gone), after.known(gone), after.known("nobody")) == (3, None, None)
    assert before.find().tolist() == list(range(60))
    assert after.find().tolist() == [0, 1, 2, *range(4, 61)]
    assert after.find("BRAND").tolist() == after.find(uid.upper()).tolist() == [60]
    assert before.find("brand").tolist() == []


def test_search_equals_that_of_the_model(model):
    shot = Snapshot.of(model)
    actual, expected = shot.search(["some text"], 1000, heads="dual"), model.search(["some text"], 60, heads="dual")
    assert actual.ids.tolist() == expected.ids.tolist()
    scores = shot.head_scores(["some text"], actual.ids)
    assert list(scores) == model.heads
    assert np.allclose(scores["dual"], actual.scores, atol=1e-5)


def test_labels_added_after_training_have_no_points(model, tmp_path):
    model.add_labels(["brand new thing"])
    assert Snapshot.of(model).points(np.array([[0, 60]])).tolist() == [[int(model.stats.counts[0]), 0]]
    model.save(tmp_path / "again")
    again = type(model).load(tmp_path / "again")
    assert Snapshot.of(again).points(np.array([60])).tolist() == [0]
    assert [Snapshot.frequency(points) for points in (0, 1, 10, 101)] == ["unseen", "tail", "torso", "head"]
