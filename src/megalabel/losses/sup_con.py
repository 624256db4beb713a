"""Supervised contrastive loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from megalabel.losses.bce import LossWithBCE
from megalabel.losses.softmax import Softmax


class SupConSettings(LossWithBCE):
    """Settings of :class:`SupCon`."""

    kind: Literal["sup_con"]
    balanced: bool = False

    def row_loss(self) -> SupCon:
        """Return the loss of this kind."""
        return SupCon(balanced=self.balanced)


@dataclass(frozen=True)
class SupCon(Softmax):
    r"""Average the softmax loss over the positives of a row: the supervised contrastive loss.

    .. math::
        \ell_i = - \frac{1}{|P_i|} \sum_{p \in P_i} \log \frac{e^{s_{ip}}}{\sum_m e^{s_{im}}}

    Khosla et al. 2020, equation 2 ("outside" form), with queries as anchors and labels as
    the other view. Equals :class:`Softmax` with ``positives="mean"``, which also describes
    ``balanced=True``, the variant of UniDEC. To use labels as anchors as well, wrap it in
    :class:`Symmetric`.

    Example:
        >>> import torch
        >>> from megalabel.losses import Softmax, SupCon
        >>> scores, targets = torch.randn(4, 6), torch.eye(4, 6)
        >>> torch.equal(SupCon()(scores, targets), Softmax()(scores, targets))
        True
    """

    positives: str = field(default="mean", init=False, repr=False)
