"""Heads whose scores depend on the way to a label."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from megalabel.heads.dense.head import DenseHead

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.heads.dense.children import Below
    from megalabel.types import View

__all__ = ["PathHead"]


class PathHead(DenseHead):
    """A head whose scores depend on the way to a label: on how the head that proposes it scores groups.

    Its settings say ``reads_paths``. A step asks it for the labels that can be reached, scores a shortlist of them, and
    lets it compute the loss.
    """

    @abstractmethod
    def reach(self, logs: Tensor, proposed: NDArray[np.int64], truth: csr_matrix) -> Below:
        """Return the labels [B, C] that a step can reach, the best way to each, and by which link.

        Args:
            logs: [B, groups] log p of all groups.
            proposed: [B, top] the best groups of each row.
            truth: [B, L] relevance; every positive that has a way is reached.
        """

    @abstractmethod
    def shortlisted(self, reached: Below) -> NDArray[np.int64]:
        """Return the labels [B, S] to score, padded with -1; a step adds the positives."""

    @abstractmethod
    def paths(self, logs: Tensor, reached: Below, candidates: Tensor) -> Tensor:
        """Return the log probability [B, S] of the way to each candidate [B, S], with gradient; 0 without one."""

    @abstractmethod
    def path_loss(self, scores: Tensor, paths: Tensor, view: View) -> Tensor:
        """Return the loss of a step, given the scores of the candidates [B, S] and the ways to them."""
