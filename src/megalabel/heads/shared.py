"""Head ``shared``: the label's text plus a vector that similar labels share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn.functional import embedding

from megalabel.graphs import partition
from megalabel.heads.dense import DenseHead, LabelTextSettings
from megalabel.heads.head import register
from megalabel.settings import NonNegativeInt

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import InitData, NewTexts
    from megalabel.heads.live import Part

__all__ = ["SharedHead", "SharedSettings", "share_vectors"]


@register
class SharedSettings(LabelTextSettings):
    """Label vectors are encoded texts plus learnt vectors that clusters of labels share."""

    has_table: ClassVar[bool] = True

    kind: Literal["shared"] = "shared"
    size: PositiveInt = 65_536  # clusters, each with a vector; at most one per label
    private: NonNegativeInt = 1_000  # most frequent labels, each with a vector of its own

    def counts(self, labels: int) -> tuple[int, int]:
        """Return the numbers of private and of shared vectors for a number of labels."""
        private = min(self.private, labels)
        return private, min(self.size, labels - private)

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of all dense heads, plus vectors, the row of each label, and texts to cluster."""
        cost = super().cost(workload)
        vectors = sum(self.counts(workload.labels))
        return replace(cost, table=0, shared=vectors, kept=2, init_from_texts=True, init_labels=2)

    def build(self, **arguments: Any) -> SharedHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return SharedHead(self, **arguments)


class SharedHead(DenseHead):
    """w_l = f(z_l) + A[c(l)], added before normalisation: the encoder of DEXA.

    The ``private`` most frequent labels have a row of A each; all others share ``size`` rows, one for each cluster
    of similar texts. A starts Xavier-uniform. Clusters have near-equal size and are made once, before the first step,
    from the vectors that the encoder gives label texts then (Dahiya et al., KDD 2023, "Deep encoders with auxiliary
    parameters for extreme classification"). A has as many rows however many labels there are, and a sparse gradient.

    A new label gets the vector of the nearest label by text that shares one (of the nearest, if none does). A
    renamed label keeps its own.
    """

    settings: SharedSettings
    cluster: Tensor  # [labels of the shard] rows of ``vectors``
    vectors: nn.Parameter  # A [private + shared, d]

    def __init__(
        self, settings: SharedSettings, *, size: int, encoder_dim: int, shard: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, shard=shard, **more)
        self.private, shared = settings.counts(size)
        self.vectors = nn.Parameter(torch.empty(self.private + shared, self.dim))
        nn.init.xavier_uniform_(self.vectors)
        self.register_buffer("cluster", torch.zeros(len(self.shard), dtype=torch.int64))

    def tables(self) -> list[nn.Parameter]:
        """Return the vectors: a step touches those of its labels."""
        return [self.vectors]

    def row_parameters(self) -> dict[str, str]:
        """Return the bias, if there is one, and the rows that labels have in ``vectors``."""
        return {**super().row_parameters(), "cluster": "cluster"}

    def resize(self, saved: Mapping[str, Tensor]) -> None:
        """Take as many vectors as there were labels for at the training, not as many as there are labels now."""
        rows = len(saved.get("vectors", self.vectors))
        self.private = min(self.private, rows)
        self.vectors = nn.Parameter(self.vectors.detach().new_zeros(rows, self.dim))

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return text vectors plus the vectors of the labels' clusters."""
        if projected is None:
            raise TypeError("a shared head needs encoded label texts")
        rows = self.cluster if pool is None else self.cluster.index_select(0, pool)
        return projected + embedding(rows, self.vectors, sparse=pool is not None)

    def init_table(self, data: InitData) -> Tensor | None:
        """Group the labels by their texts."""
        private, shared = self.settings.counts(self.size)
        counts = np.diff(data.targets.tocsc().indptr)
        chosen = share_vectors(data.all_texts().cpu().numpy(), counts, private, shared, seed=data.seed)
        self.cluster.copy_(torch.from_numpy(chosen[data.shard.start : data.shard.stop]))
        return None

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Add the vector of the nearest label that shares one, or the own one of a renamed label."""
        texts = self.project(new.encoded(self), search=True)
        if new.added:
            near = self.cluster[new.nearest()[0].to(self.cluster.device)]  # [n, m], the nearest first
            shares = (near >= self.private).int()
            rows = near.gather(1, shares.argmax(dim=1, keepdim=True)).squeeze(1)
        else:
            rows = self.cluster[torch.from_numpy(new.ids).to(self.cluster.device)]
        return texts + self.vectors[rows], {"cluster": rows}


def share_vectors(
    texts: NDArray[np.float32], counts: NDArray[np.integer[Any]], private: int, shared: int, *, seed: int
) -> NDArray[np.int64]:
    """Return the row of A that each label has [L]: a private one for the most frequent, else that of its cluster.

    Args:
        texts: [L, d] vectors of label texts; length does not matter.
        counts: [L] points of each label; of equally frequent ones, those of lower number come first.
        private: labels with a row of their own: rows 0 to private - 1, the most frequent first.
        shared: clusters of all others: the rows after those.
        seed: of the clusters.

    >>> texts = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 1]], dtype=np.float32)
    >>> rows = share_vectors(texts, np.array([2, 1, 1, 1, 9]), 1, 2, seed=0)
    >>> bool(rows[0] == rows[1] != rows[2] == rows[3]), int(rows[4]), sorted(set(rows.tolist()))
    (True, 0, [0, 1, 2])
    """
    order = np.argsort(-np.asarray(counts), kind="stable")
    rows = np.empty(len(texts), dtype=np.int64)
    rows[order[:private]] = np.arange(private)
    others = np.sort(order[private:])
    if len(others):
        rows[others] = private + partition(texts[others], clusters=shared, seed=seed)
    return rows
