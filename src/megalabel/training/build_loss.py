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

    >>> from megalabel.recipes.schema import LossSettings
    >>> build_loss(LossSettings(kind="decoupled_softmax", symmetric=0.5))
    Symmetric(loss=DecoupledSoftmax(reduction='mean'), weight=0.5)
    """
    kinds: dict[str, Loss] = {
        "bce": BCE(),
        "softmax": Softmax(),
        "decoupled_softmax": DecoupledSoftmax(),
        "soft_top_k": SoftTopK(k=settings.k, alpha=settings.alpha),
        "sup_con": SupCon(balanced=settings.balanced),
        "triplet": Triplet(margin=settings.margin),
        "squared_hinge": SquaredHinge(),
    }
    loss = kinds[settings.kind]
    if settings.symmetric is not None:
        loss = Symmetric(loss, weight=settings.symmetric)
    return Sum((loss, BCE()), weights=(1.0, settings.bce)) if settings.bce else loss
