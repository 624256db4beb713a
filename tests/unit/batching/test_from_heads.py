"""Candidates that were propagated over a graph."""

import numpy as np
from scipy import sparse

from megalabel.batching.from_heads import HeadCandidates


def test_the_best_of_the_propagated_probabilities_are_proposed():
    rng = np.random.default_rng(0)
    graph = sparse.random(9, 9, density=0.3, random_state=rng, format="csr", dtype=np.float32)
    proposed = np.array([[4, 1, 7], [0, 8, -1], [2, -1, -1]])
    scores = rng.normal(size=proposed.shape).astype(np.float32)
    maker = HeadCandidates(sparse.csr_matrix((3, 9), dtype=np.float32), graph=graph)
    best = maker.propagated(proposed, scores)
    dense = graph.toarray().astype(np.float64)
    for row in range(3):
        spread = np.zeros(9)
        for place in range(3):
            if proposed[row, place] >= 0:
                spread += dense[proposed[row, place]] / (1 + np.exp(-float(scores[row, place])))
        reached = [label for label in np.argsort(-spread, kind="stable") if spread[label] > 0][:3]
        assert best[row, : len(reached)].tolist() == reached
        assert best[row, len(reached) :].tolist() == proposed[row, len(reached) :].tolist()


def test_positives_stay_candidates_wherever_the_graph_leads():
    targets = sparse.csr_matrix(np.array([[0, 0, 1, 0]], dtype=np.float32))
    away = sparse.csr_matrix(np.array([[0, 1, 0, 0]] * 4, dtype=np.float32))
    maker = HeadCandidates(targets, graph=away)
    view = maker.view(np.array([0]), maker.propagated(np.array([[2]]), np.array([[3.0]], dtype=np.float32)))
    assert view.candidates.tolist() == [[1, 2]] and view.targets.dense().tolist() == [[0.0, 1.0]]
