import megalabel as ml
from megalabel.model.stats import LabelStats


def test_frequencies_are_those_of_the_data_before_a_split(data):
    stats = LabelStats.of(data)
    assert stats.counts.tolist() == data.counts.tolist()
    assert (stats.points, stats.propensity) == (data.points, data.propensity)
    assert list(stats.train().texts) == list(data.train.texts)


def test_added_labels_have_no_points(data):
    stats = LabelStats.of(data)
    grown = stats.grown(2)
    assert grown.counts.tolist() == [*data.counts.tolist(), 0, 0]
    assert (grown.points, grown.propensity, grown.train) == (stats.points, stats.propensity, stats.train)
    assert len(stats.counts) == len(data.labels)


def test_a_saved_model_keeps_them(run, data):
    stats = ml.Model.load(run).stats
    assert stats.counts.tolist() == data.counts.tolist()
    assert (stats.points, stats.propensity) == (data.points, data.propensity)
    assert sorted(stats.train().texts) == sorted(data.train.texts)
