from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.errors import DataError, SettingError
from megalabel.metrics import equal_volume_bins, find_hits, head_torso_tail, precision


def problem(seed, rows=50, labels=60, width=6):
    rng = np.random.default_rng(seed)
    ids = np.array([rng.permutation(labels)[:width] for _ in range(rows)])
    truth = csr_matrix(rng.random((rows, labels)) < 0.15)
    return find_hits(ids, truth), (200 / (1 + np.arange(labels)) ** rng.random() * 2 - 3).clip(0).astype(np.int64)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("bins", [1, 2, 5, 10])
def test_parts_add_up_to_precision(oracle, seed, bins):
    hits, counts = problem(seed)
    parts = equal_volume_bins(hits, counts, [1, 5], bins=bins)
    assert len(parts) == bins
    assert sum(part.labels for part in parts) == hits.labels
    assert sum(part.positives for part in parts) == counts.sum()
    for k in (1, 5):
        assert sum(part.precision[k] for part in parts) == pytest.approx(precision(hits, [k])[0], abs=1e-12)
    group = oracle.equal_volume(counts.tolist(), bins)
    assert [part.labels for part in parts] == [group.count(number) for number in range(bins)]


def test_bins_hold_equal_volumes_and_the_head_comes_first():
    counts = (3000 / np.arange(1, 20_001) ** 0.7).astype(np.int64)
    hits = find_hits(np.array([[0]]), csr_matrix(([1.0], ([0], [0])), shape=(1, 20_000)), 5)
    parts = equal_volume_bins(hits, counts)
    assert [part.name for part in parts] == ["1 head", "2", "3", "4", "5 tail"]
    share = np.array([part.positives for part in parts]) / counts.sum()
    np.testing.assert_allclose(share, 0.2, atol=0.01)
    means = [part.positives_per_label for part in parts]
    assert means == sorted(means, reverse=True)
    assert all(one.least >= other.largest for one, other in pairwise(parts))


def test_labels_without_training_points_are_in_the_last_bin():
    hits = find_hits(np.array([[2]]), csr_matrix([[0, 0, 1]]))
    parts = equal_volume_bins(hits, np.array([1, 1, 0]), [1], bins=2)
    assert [(part.labels, part.precision[1]) for part in parts] == [(1, 0.0), (2, 1.0)]
    assert [part.labels for part in equal_volume_bins(hits, np.zeros(3, dtype=int), [1], bins=2)] == [0, 3]


def test_head_torso_tail_limits():
    counts = np.array([101, 100, 10, 9, 1, 0])
    hits = find_hits(np.array([[0, 1, 2], [3, 4, 5]]), csr_matrix([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 1]]))
    parts = head_torso_tail(hits, counts, [3])
    assert [(part.name, part.labels, part.least, part.largest) for part in parts] == [
        ("head", 1, 101, 101),
        ("torso", 2, 10, 100),
        ("tail", 2, 1, 9),
        ("unseen", 1, 0, 0),
    ]
    assert [part.precision[3] * 6 for part in parts] == pytest.approx([1, 2, 1, 1])
    assert parts[1].positives_per_label == 55


def test_invalid_input_is_named_in_the_error():
    hits, counts = problem(0)
    with pytest.raises(DataError, match="59 label counts for 60 labels"):
        equal_volume_bins(hits, counts[:-1])
    with pytest.raises(SettingError, match="0 bins"):
        equal_volume_bins(hits, counts, bins=0)
