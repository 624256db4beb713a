"""From what a recipe says of a loss to the loss itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megalabel.losses import (
    BCE,
    DecoupledSoftmax,
    Softmax,
    SoftTopK,
    SquaredHinge,
    Sum,
    SupCon,
    Symmetric,
    Triplet,
)

if TYPE_CHECKING:
    from megalabel.recipes.schema import LossSettings
    from megalabel.types import Loss

__all__ = ["build_loss"]


def build_loss(settings: LossSettings) -> Loss:
    """Return the loss, made symmetric and given its BCE part where the recipe says so.

    That BCE is the mean over queries and labels (UniDEC, Kharbanda et al. 2024, arXiv 2405.03714); as a sum over labels
    it would outweigh the loss it is added to by the size of the pool.

    >>> from megalabel.recipes.schema import LossSettings
    >>> build_loss(LossSettings(kind="decoupled_softmax", symmetric=0.5))
    Symmetric(loss=DecoupledSoftmax(reduction='mean'), weight=0.5)
    """
    reduction = "cells" if settings.cells else "mean"
    kinds: dict[str, Loss] = {
        "bce": BCE(reduction=reduction),
        "softmax": Softmax(),
        "decoupled_softmax": DecoupledSoftmax(),
        "soft_top_k": SoftTopK(k=settings.k, alpha=settings.alpha),
        "sup_con": SupCon(balanced=settings.balanced),
        "triplet": Triplet(margin=settings.margin),
        "squared_hinge": SquaredHinge(reduction=reduction),
    }
    loss = kinds[settings.kind]
    if settings.symmetric is not None:
        loss = Symmetric(loss, weight=settings.symmetric)
    return Sum((loss, BCE(reduction="cells")), weights=(1.0, settings.bce)) if settings.bce else loss
