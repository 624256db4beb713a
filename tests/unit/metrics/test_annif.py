"""Annif's figures of documents, against plain loops; tests/serve/test_annif_client.py asks Annif itself."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.metrics import evaluate
from megalabel.metrics.annif import annif_metrics


def plain(ids, truth, limit=10):
    """The same figures by loops over documents."""
    rows = []
    for ranking, row in zip(ids.tolist(), truth.toarray(), strict=True):
        ranking = [label for label in ranking if label >= 0][:limit]
        subjects = set(np.flatnonzero(row).tolist())

        def share(top, bottom):
            return top / bottom if bottom else 0.0

        def cut(k, ranking=ranking, subjects=subjects):
            right = len(subjects & set(ranking[:k]))
            size = len(ranking[:k])
            return share(right, size), share(right, len(subjects)), share(2 * right, size + len(subjects))

        def ndcg(k, ranking=ranking, subjects=subjects):
            if not subjects:
                return 1.0
            gain = sum(1 / np.log2(place + 2) for place, label in enumerate(ranking[:k]) if label in subjects)
            return gain / sum(1 / np.log2(place + 2) for place in range(min(k, len(subjects))))

        rows.append(
            [*cut(limit), cut(5)[2], ndcg(len(row) + limit), ndcg(5), ndcg(10), cut(1)[0], cut(3)[0], cut(5)[0]]
        )
    return np.mean(rows, axis=0).tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [1, 4, 10, 14])
def test_like_plain_loops(seed, width):
    rng = np.random.default_rng(seed)
    truth = csr_matrix((rng.random((20, 15)) < 0.2).astype(np.float32) * 0.5)
    ids = np.stack([rng.permutation(15)[:width] for _ in range(20)])
    ids[3] = -1  # a document without suggestions
    ids[4, width // 2 :] = -1
    found = annif_metrics(ids, truth)
    assert list(found.values()) == pytest.approx(plain(ids, truth))
    names = ["Precision (doc avg)", "Recall (doc avg)", "F1 score (doc avg)", "F1@5", "NDCG", "NDCG@5", "NDCG@10"]
    assert list(found) == [*names, "Precision@1", "Precision@3", "Precision@5"]


def test_in_a_report_only_if_asked_for():
    truth, ids = csr_matrix([[1, 0, 1]]), np.array([[0, 1, 2]])
    assert "annif" not in evaluate(ids, truth).to_dict()
    report = evaluate(ids, truth, annif=True)
    assert report.to_dict()["annif"]["F1@5"] == pytest.approx(0.8)
    assert "F1@5:                         \t0.8000" in report.table()


def test_filter_pairs_leave_the_rankings_first():
    truth, ids = csr_matrix([[1, 0, 0]]), np.array([[1, 0, 2]])
    report = evaluate(ids, truth, filter=np.array([[0, 1]]), annif=True)
    assert report.annif["Precision@1"] == 1.0
