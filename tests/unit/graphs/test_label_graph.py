import numpy as np
import pytest
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs import cooccurrence, label_graph, random_walk, walk_targets

RNG = np.random.default_rng(0)
TARGETS = sparse.csr_matrix((RNG.random((30, 8)) < 0.3).astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("counts", cooccurrence(TARGETS, 0.2)),
        ("shared_counts", cooccurrence(TARGETS, 0.2, share_rows=True)),
        ("shrunk_counts", cooccurrence(TARGETS, 0.2, shrink=1)),
        ("walk", walk_targets(random_walk(TARGETS, seed=3), 0.2)),
    ],
)
def test_names(kind, expected):
    assert (label_graph(kind, TARGETS, 0.2, seed=3) != expected).nnz == 0


def test_unknown_name():
    with pytest.raises(SettingError, match="did you mean 'shared_counts'"):
        label_graph("shared_count", TARGETS)
