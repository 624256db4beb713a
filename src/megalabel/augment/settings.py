"""The settings of an augmentation, chosen by ``kind``; ``gandalf`` is the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from megalabel.augment._rows import Augmentation
from megalabel.augment.gandalf import GandalfSettings
from megalabel.augment.label_mixup import LabelMixupSettings
from megalabel.augment.mixup import MixupSettings
from megalabel.augment.synonyms import SynonymsSettings
from megalabel.settings import Settings, one_of

__all__ = ["AUGMENTATIONS", "AugmentSettings"]

AUGMENTATIONS: dict[str, type[Settings]] = {
    "gandalf": GandalfSettings,
    "mixup": MixupSettings,
    "label_mixup": LabelMixupSettings,
    "synonyms": SynonymsSettings,
}

if TYPE_CHECKING:
    AugmentSettings: TypeAlias = Augmentation
else:
    AugmentSettings = one_of(lambda: AUGMENTATIONS, default="gandalf")
