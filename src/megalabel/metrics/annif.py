"""The metrics of single documents that ``annif eval`` prints, by its names: fractions, not percent.

They differ from ours: precision and F1 divide by the number of suggestions there are, at most ``limit``, not by k; and
a document without subjects counts 1 in nDCG and 0 in the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.metrics.hits import as_ids, find_hits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from megalabel.metrics.hits import Hits

__all__ = ["annif_metrics"]


def annif_metrics(ids: NDArray[np.integer[Any]], truth: csr_matrix, limit: int = 10) -> dict[str, float]:
    """Measure rankings as ``annif eval --limit`` does; its default limit is 10 suggestions per document.

    With s_i suggestions, r_i subjects and t_i of both, precision is mean_i t_i / s_i, recall mean_i t_i / r_i and
    F1 mean_i 2 t_i / (s_i + r_i), where 0 / 0 is 0. ``@k`` cuts the suggestions to the best k.

    Args:
        ids: [N, K] label ids, best first; a short ranking ends in -1.
        truth: [N, L] sparse relevance.
        limit: suggestions of a document.

    >>> from scipy.sparse import csr_matrix
    >>> found = annif_metrics(np.array([[0, 1], [2, -1]]), csr_matrix([[1, 0, 0], [0, 1, 1]]))
    >>> {name: round(value, 4) for name, value in found.items() if "@5" in name}
    {'F1@5': 0.6667, 'NDCG@5': 0.8066, 'Precision@5': 0.75}
    """
    hits = find_hits(as_ids(ids)[:, :limit], truth, limit)
    precision, recall, f1 = _by_document(hits, limit)
    figures = {"Precision (doc avg)": precision, "Recall (doc avg)": recall, "F1 score (doc avg)": f1}
    figures["F1@5"] = _by_document(hits, 5)[2]
    figures |= {"NDCG": _ndcg(hits, None), "NDCG@5": _ndcg(hits, 5), "NDCG@10": _ndcg(hits, 10)}
    return figures | {f"Precision@{k}": _by_document(hits, k)[0] for k in (1, 3, 5)}


def _by_document(hits: Hits, k: int) -> tuple[float, float, float]:
    """Return precision, recall and F1, averaged over documents."""
    found = np.bincount(hits.row[hits.rank < k], minlength=hits.rows).astype(np.float64)
    suggested = (hits.ids[:, :k] >= 0).sum(axis=1)
    pairs = ((found, suggested), (found, hits.relevant), (2.0 * found, suggested + hits.relevant))
    precision, recall, f1 = (float((top / np.maximum(bottom, 1)).mean()) for top, bottom in pairs)
    return precision, recall, f1


def _ndcg(hits: Hits, k: int | None) -> float:
    """Return nDCG cut to k; without k, of all suggestions against all subjects."""
    gain = 1.0 / np.log2(np.arange(max(hits.max_k, int(hits.relevant.max(initial=0)))) + 2.0)
    ideal = np.concatenate([[1.0], np.cumsum(gain)])[hits.relevant if k is None else np.minimum(k, hits.relevant)]
    inside = slice(None) if k is None else hits.rank < k
    sums = np.bincount(hits.row[inside], gain[hits.rank[inside]], minlength=hits.rows)
    return float(np.where(hits.relevant == 0, 1.0, sums / ideal).mean())
