"""Wrong labels that share words with a query, ranked by BM25: hard negatives that need no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.batching.negatives import pairs_matrix
from megalabel.encoders._features import Features
from megalabel.heads.sparse.rows import as_targets

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["mine_bm25"]

K1, B = 1.2, 0.75  # how soon a repeated word counts no more; how much long texts are held back
_WORDS = 2**18  # columns that words are hashed to
_CHUNK = 65_536  # queries at a time


def mine_bm25(
    texts: Sequence[str],
    labels: Sequence[str],
    targets: sparse.csr_matrix,
    filter: NDArray[np.int64] | None,
    top: int,
) -> NDArray[np.int32]:
    r"""Find each query's ``top`` best labels by BM25 that are neither its positives nor filtered.

    .. math::
        s(q, l) = \sum_{t \in q} n_{tq} \log\Bigl(1 + \frac{L - n_t + 1/2}{n_t + 1/2}\Bigr)
        \frac{n_{tl} (k_1 + 1)}{n_{tl} + k_1 (1 - b + b |l| / \text{mean } |l|)}

    with n_tq and n_tl how often query and label have word t, n_t the labels that have it, of L in all, and ``|l|`` the
    words of a label; k1 = 1.2, b = 0.75 (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25
    and Beyond"). Words are in lower case. DPR (Karpukhin et al., EMNLP 2020) trains with one such negative per query.

    Args:
        texts: of the N queries.
        labels: texts of the L labels.
        targets: [N, L] relevance of the queries.
        filter: [n, 2] pairs (query, label) that are neither right nor wrong, or None.
        top: labels per query.

    Returns:
        [N, top] label ids, best first, ties by id, padded with -1; labels without a common word are not found.

    >>> mine_bm25(["red shoe"], ["blue hat", "red hat", "shoe", "red shoe"], sparse.csr_matrix([[0, 0, 0, 1]]), None, 3)
    array([[ 2,  1, -1]], dtype=int32)
    """
    from megalabel.heads.sparse.inverted_index import InvertedIndex

    index = InvertedIndex(_weigh(_count(labels)), None, floor=0.0)
    filtered = pairs_matrix(filter, targets.shape)
    mined = np.empty((len(texts), top), dtype=np.int32)
    for start in range(0, len(texts), _CHUNK):
        part = slice(start, start + _CHUNK)
        known = as_targets(targets[part] + filtered[part], "targets", targets[part].shape)
        mined[part] = index.search(_count(texts[part]), top, known, "searching by BM25").ids
    return mined


def _count(texts: Sequence[str]) -> sparse.csr_matrix:
    """Return how often each text has each word [n, words]."""
    tokens = Features(None, words=_WORDS, bigrams=0, characters=0, ngrams=[1]).tokenise(texts)
    ones = np.ones(len(tokens.ids), dtype=np.float32)
    counts = sparse.csr_matrix((ones, tokens.ids.astype(np.int32), tokens.offsets), shape=(len(texts), _WORDS))
    counts.sum_duplicates()
    return counts


def _weigh(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the weights of the words of labels, given their counts."""
    lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    usual = lengths.mean() or 1.0
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((counts.shape[0] - having + 0.5) / (having + 0.5))
    held_back = np.repeat(K1 * (1 - B + B * lengths / usual), np.diff(counts.indptr))
    weights = idf[counts.indices] * counts.data * (K1 + 1) / (counts.data + held_back)
    return sparse.csr_matrix((weights.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)
