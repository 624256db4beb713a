"""Fusion: all heads score the candidates of every head; one probability per query and label."""

from megalabel.fusion.calibrate import Calibration, expected_calibration_error
from megalabel.fusion.candidates import union
from megalabel.fusion.fuse import Fusion

__all__ = ["Calibration", "Fusion", "expected_calibration_error", "union"]
