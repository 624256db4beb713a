"""Fusion: all heads score the candidates of every head; one probability per query and label."""

from collections.abc import Mapping
from typing import Any

from megalabel.fusion.calibrate import Calibration, expected_calibration_error
from megalabel.fusion.candidates import then_others, union
from megalabel.fusion.fuse import Fusion
from megalabel.fusion.fused import FusedScores
from megalabel.fusion.tree import TreeFusion

__all__ = [
    "Calibration",
    "FusedScores",
    "Fusion",
    "TreeFusion",
    "expected_calibration_error",
    "read_fusion",
    "then_others",
    "union",
]


def read_fusion(values: Mapping[str, Any]) -> FusedScores:
    """Read the output of ``to_dict`` of either fusion; raise a DataError for anything else."""
    kind = TreeFusion if isinstance(values, Mapping) and "tree" in values else Fusion
    return kind.from_dict(values)
