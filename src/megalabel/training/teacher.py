"""What a training can learn from beside the true labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import nn

    from megalabel.data.dataset import Dataset

__all__ = ["Teacher"]


class Teacher(Protocol):
    """What a training can learn from beside the true labels; see :func:`megalabel.distiller.distil`."""

    @property
    def identity(self) -> str:
        """Of model and settings: a run is resumed with the same."""
        ...

    def teach(self, data: Dataset) -> Dataset:
        """Return the set with what the teacher says of its train rows in their targets."""
        ...

    def start(self, encoders: Mapping[str, nn.Module]) -> None:
        """Give fresh encoders the weights of the teacher's, where they fit."""
        ...
