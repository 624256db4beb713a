"""More training rows made from train rows and label texts: every augmentation is ``Dataset -> Dataset``.

Only train changes; val, test and the propensities do not change. Hold validation
rows out *before* augmenting: a label text that learnt from a row must not see that row
held out afterwards. ``megalabel train --set augment=gandalf`` keeps that order by itself.
"""

from __future__ import annotations

from megalabel.augment.agreement import Agreement, agreement
from megalabel.augment.gandalf import gandalf
from megalabel.augment.label_mixup import label_mixup
from megalabel.augment.mixup import mixup
from megalabel.augment.synonyms import synonyms

__all__ = ["Agreement", "agreement", "gandalf", "label_mixup", "mixup", "synonyms"]
