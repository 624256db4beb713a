"""Negatives by BM25, against the formula word by word."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.batching import mine_bm25

WORDS = st.sampled_from(["red", "blue", "shoe", "hat", "wool", "a"])
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


def bm25(query, label, labels):
    """The formula, in float64, one word at a time."""
    mean = sum(len(text.split()) for text in labels) / len(labels)
    total = 0.0
    for word in query.lower().split():
        having = sum(word in text.lower().split() for text in labels)
        idf = math.log(1 + (len(labels) - having + 0.5) / (having + 0.5))
        count = label.lower().split().count(word)
        if count:
            length = 1 - 0.75 + 0.75 * len(label.split()) / mean
            total += idf * count * 2.2 / (count + 1.2 * length)
    return total


@settings(max_examples=40)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=7), st.integers(0, 99))
def test_the_best_wrong_labels_by_the_formula(texts, labels, seed):
    rng = np.random.default_rng(seed)
    shape = len(texts), len(labels)
    targets = sparse.csr_matrix((rng.random(shape) < 0.3).astype(np.float32))
    pairs = np.argwhere(rng.random(shape) < 0.2)
    actual = mine_bm25(texts, labels, targets, pairs, top=3)
    assert actual.dtype == np.int32
    for row, text in enumerate(texts):
        known = {*targets[[row]].indices.tolist(), *(label for one, label in pairs.tolist() if one == row)}
        scores = {
            label: score
            for label in range(len(labels))
            if label not in known and (score := bm25(text, labels[label], labels))
        }
        chosen = [label for label in actual[row].tolist() if label >= 0]
        assert len(chosen) == min(3, len(scores)) == len(set(chosen))
        assert set(chosen) <= set(scores)
        best = sorted(scores.values(), reverse=True)[:3]
        np.testing.assert_allclose([scores[label] for label in chosen], best, rtol=1e-5)
        assert (actual[row] >= 0).tolist() == [True] * len(chosen) + [False] * (3 - len(chosen))


def test_ties_go_to_the_lower_label_and_case_does_not_count():
    none = sparse.csr_matrix((1, 3), dtype=np.float32)
    assert mine_bm25(["Red"], ["red hat", "RED hat", "hat"], none, None, 3).tolist() == [[0, 1, -1]]


def test_labels_without_a_word():
    assert mine_bm25(["red"], ["", "-"], sparse.csr_matrix((1, 2)), None, 2).tolist() == [[-1, -1]]
