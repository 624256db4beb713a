"""Additional training rows from train rows and label texts: every augmentation is ``Dataset -> Dataset``.

Only train changes, not val, test or the propensities. Hold validation rows out *before*
augmenting: otherwise the targets of label texts contain validation pairs.
``megalabel train --set augment=gandalf`` does it in that order.
"""

from __future__ import annotations

from megalabel.augment.agreement import Agreement, agreement
from megalabel.augment.gandalf import gandalf
from megalabel.augment.label_mixup import label_mixup
from megalabel.augment.mixup import mixup
from megalabel.augment.synonyms import synonyms

__all__ = ["Agreement", "agreement", "gandalf", "label_mixup", "mixup", "synonyms"]
