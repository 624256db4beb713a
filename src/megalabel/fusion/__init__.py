"""Fusion: candidates of several heads, scored by all, one probability per query and label."""

from megalabel.fusion.calibrate import Calibration, expected_calibration_error
from megalabel.fusion.fuse import Fusion
from megalabel.fusion.union import union

__all__ = ["Calibration", "Fusion", "expected_calibration_error", "union"]
