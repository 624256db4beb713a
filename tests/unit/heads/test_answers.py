"""Each kind of answer against plain arithmetic on a full score matrix."""

import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.heads.answers import DenseAnswers, SearchedAnswers, StoredAnswers
from megalabel.heads.linear import Linear
from megalabel.index import ExactIndex

QUERIES, LABELS = 7, 23


def dense():
    torch.manual_seed(0)
    labels, queries = torch.randn(LABELS, 5), torch.randn(QUERIES, 5)
    return DenseAnswers(ExactIndex(labels), queries), (queries @ labels.T).numpy()


def stored():
    rng = np.random.default_rng(1)
    full = np.where(rng.random((QUERIES, LABELS)) < 0.3, rng.random((QUERIES, LABELS)), 0).astype(np.float32)
    full[2] = 0  # a query nobody answers
    return StoredAnswers(sparse.csr_matrix(full)), full


def linear():
    rng = np.random.default_rng(2)
    rows = sparse.csr_matrix((rng.random((40, 30)) < 0.2).astype(np.float32))
    targets = sparse.csr_matrix((rng.random((40, LABELS)) < 0.2).astype(np.float32))
    head = Linear(prune=0.0, uniform=10).fit(rows, targets)
    return SearchedAnswers(head, rows[:QUERIES]), (rows[:QUERIES] @ head.weights_.T).toarray() + head.bias_


KINDS = {"dense": dense, "stored": stored, "linear": linear}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_candidates_are_those_of_the_matrix(kind):
    answers, full = KINDS[kind]()
    candidates = np.random.default_rng(3).integers(0, LABELS, size=(QUERIES, 9))
    candidates[:, -2:] = -1
    actual = answers.score(candidates)
    assert actual.dtype == np.float32
    assert np.allclose(actual[:, :7], np.take_along_axis(full, candidates[:, :7], axis=1), atol=1e-5)
    assert answers.score(np.empty((QUERIES, 0), dtype=np.int64)).shape == (QUERIES, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 4, LABELS])
def test_best_are_the_best_that_are_not_excluded(kind, k):
    answers, full = KINDS[kind]()
    out = np.random.default_rng(4).random(full.shape) < 0.2
    for exclude in (None, sparse.csr_matrix(out.astype(np.float32))):
        actual = answers.best(k, exclude)
        allowed = np.where(out, -np.inf, full) if exclude is not None else full.astype(float)
        if kind == "stored":
            allowed = np.where(allowed > 0, allowed, -np.inf)  # labels without a score are no answers
        for row in range(QUERIES):
            wanted = sorted(np.flatnonzero(allowed[row] > -np.inf), key=lambda label: (-allowed[row, label], label))[:k]
            ids = actual.ids[row][actual.ids[row] >= 0]
            assert len(ids) == len(wanted)
            assert np.allclose(allowed[row, ids], allowed[row, wanted], atol=1e-5)
            assert np.allclose(actual.scores[row][: len(ids)], allowed[row, ids], atol=1e-5)
        assert np.all(np.isneginf(actual.scores[actual.ids < 0]))


def test_equal_stored_scores_go_to_the_lower_label():
    actual = StoredAnswers(sparse.csr_matrix(np.array([[0, 0.5, 0.9, 0.5]], dtype=np.float32))).best(3, None)
    assert actual.ids.tolist() == [[2, 1, 3]]


def test_no_scores_at_all():
    answers = StoredAnswers(sparse.csr_matrix((2, 5), dtype=np.float32))
    assert answers.best(3, None).ids.tolist() == [[-1] * 3] * 2
    assert answers.score(np.array([[0, -1], [4, 2]])).tolist() == [[0, 0], [0, 0]]
