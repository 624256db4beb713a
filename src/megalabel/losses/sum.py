"""A weighted sum of losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megalabel.losses.base import require
from megalabel.losses.symmetric import given

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Loss, Targets


@dataclass(frozen=True)
class Sum:
    r"""Add losses on the same scores, each with a weight.

    .. math:: \sum_j \lambda_j\, \ell_j(S, Y)

    Each weight defaults to 1. The streamed form reads the blocks once per pass for all parts
    together and takes as many passes as the part that needs most.

    Example:
        >>> import torch
        >>> from megalabel.losses import BCE, DecoupledSoftmax, Sum, Symmetric
        >>> loss = Sum((Symmetric(DecoupledSoftmax()), BCE()), weights=(1.0, 0.1))
        >>> loss(torch.zeros(2, 4), torch.eye(2, 4)).shape
        torch.Size([])
    """

    losses: tuple[Loss, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        require(len(self.losses) > 0, "a sum needs at least one loss", "pass one or more")
        fits = self.weights is None or len(self.weights) == len(self.losses)
        require(fits, f"{len(self.losses)} losses have {len(self.weights or ())} weights", "give one weight per loss")

    def parts(self) -> list[tuple[float, Loss]]:
        """Return each weight with its loss."""
        return list(zip(self.weights or (1.0,) * len(self.losses), self.losses, strict=True))

    @property
    def takes_columns(self) -> bool:
        """Whether a part pairs columns and needs the label ids of per-row candidates."""
        return any(getattr(loss, "takes_columns", False) for loss in self.losses)

    def __call__(
        self,
        scores: Tensor,
        targets: Tensor | Targets,
        mask: Tensor | None = None,
        *,
        log_q: Tensor | None = None,
        columns: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted sum; arguments as in :class:`Symmetric`."""
        total: Tensor | None = None
        for weight, loss in self.parts():
            extra = given(log_q=log_q, columns=columns if getattr(loss, "takes_columns", False) else None)
            value = weight * loss(scores, targets, mask, **extra)
            total = value if total is None else total + value
        assert total is not None  # there is at least one part
        return total
