"""Recall of an index."""

import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.errors import DataError
from megalabel.index import ExactIndex, recall
from megalabel.types import TopK


class Fixed:
    def __init__(self, ids, scores):
        self.top = TopK(np.array(ids), np.array(scores, dtype=np.float32))

    def search(self, vectors, k, exclude=None):
        return self.top


def test_counts_labels_no_worse_than_the_last():
    exact = Fixed([[0, 1], [2, -1], [-1, -1]], [[3, 2], [1, -np.inf], [-np.inf] * 2])
    approximate = Fixed([[0, 9], [7, -1], [-1, -1]], [[3, 2], [0.5, -np.inf], [-np.inf] * 2])
    assert recall(approximate, exact, torch.zeros(3, 1), 2) == pytest.approx((1 + 0 + 1) / 3)  # 9 ties with 1


def test_excluded_pairs_are_ignored():
    index = ExactIndex(torch.eye(3))
    assert recall(index, index, torch.eye(3), 2, exclude=sparse.csr_matrix(np.eye(3))) == 1.0


def test_no_queries():
    with pytest.raises(DataError):
        recall(ExactIndex(torch.eye(2)), ExactIndex(torch.eye(2)), torch.empty(0, 2))
