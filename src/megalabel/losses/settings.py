"""The losses a recipe can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from megalabel.losses.bce import BCESettings
from megalabel.losses.decoupled_softmax import DecoupledSoftmaxSettings
from megalabel.losses.probabilistic_contrastive import ProbabilisticContrastiveSettings
from megalabel.losses.soft_top_k import SoftTopKSettings
from megalabel.losses.softmax import SoftmaxSettings
from megalabel.losses.squared_hinge import SquaredHingeSettings
from megalabel.losses.sup_con import SupConSettings
from megalabel.losses.symmetric import SymmetricSettings
from megalabel.losses.triplet import TripletSettings
from megalabel.losses.truncated_softmax import TruncatedSoftmaxSettings
from megalabel.settings import one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megalabel.types import Loss

__all__ = ["LOSSES", "LossSettings", "build_loss"]

LOSSES: dict[str, type[SymmetricSettings]] = {
    "bce": BCESettings,
    "softmax": SoftmaxSettings,
    "decoupled_softmax": DecoupledSoftmaxSettings,
    "soft_top_k": SoftTopKSettings,
    "sup_con": SupConSettings,
    "triplet": TripletSettings,
    "squared_hinge": SquaredHingeSettings,
    "probabilistic_contrastive": ProbabilisticContrastiveSettings,
    "truncated_softmax": TruncatedSoftmaxSettings,
}

if TYPE_CHECKING:
    LossSettings = (
        BCESettings
        | SoftmaxSettings
        | DecoupledSoftmaxSettings
        | SoftTopKSettings
        | SupConSettings
        | TripletSettings
        | SquaredHingeSettings
        | ProbabilisticContrastiveSettings
        | TruncatedSoftmaxSettings
    )
else:
    LossSettings = one_of(lambda: LOSSES)


def build_loss(settings: LossSettings | Mapping[str, Any] | str) -> Loss:
    """Return the loss that settings describe, made symmetric and given its BCE part if they say so.

    Takes what a recipe can have under ``loss``: a kind, or a mapping with ``kind`` and the settings of that kind.

    >>> build_loss("decoupled_softmax")
    DecoupledSoftmax(reduction='mean', positives='mean')
    >>> build_loss({"kind": "softmax", "positives": "sum", "symmetric": 0.5})
    Symmetric(loss=Softmax(reduction='mean', positives='sum', balanced=False), weight=0.5)
    """
    loss: SymmetricSettings = TypeAdapter(LossSettings).validate_python(settings)
    return loss.build()
