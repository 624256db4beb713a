"""How often a loss goes over the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megalabel.plan.case import HeadSize

__all__ = ["products"]

_SEPARABLE, _ROW_STATE = (1, 3), (2, 4)
_KINDS = {
    "bce": _SEPARABLE,
    "squared_hinge": _SEPARABLE,
    "probabilistic_contrastive": _SEPARABLE,
    "triplet": (1, 1),
    "soft_top_k": (3, 5),
}


def products(head: HeadSize) -> tuple[int, int]:
    """Return the passes over the labels and the products of 2 B P d operations, as ``streamed`` tells them.

    A sum takes the most of its parts.
    """
    loss = head.settings.loss
    assert loss is not None
    found = _KINDS.get(loss.kind, _ROW_STATE)
    return max(found, _SEPARABLE) if getattr(loss, "bce", 0.0) else found
