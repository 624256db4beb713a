"""The training texts and their labels, kept with a model so that it can explain itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
from scipy import sparse

from megalabel.encoders._arrays import read_part, write_part
from megalabel.heads._rows import PARTS, pack, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset

__all__ = ["TrainRows"]

NAME = "train"
_ARRAYS = ["bytes", "ends", *(f"targets.{part}" for part in PARTS)]


@dataclass(frozen=True)
class TrainRows:
    """Texts [N] and relevance [N, L] of the training; L is the number of labels then.

    On disk they take the bytes of the texts and 8 bytes for each pair of text and label.
    """

    texts: Sequence[str]
    targets: sparse.csr_matrix

    @classmethod
    def of(cls, data: Dataset) -> TrainRows:
        """Take the train rows of a set, with those a validation part was held out of."""
        train = data.train if data.before is None else data.before.train
        return cls(train.texts, train.targets)

    def save(self, folder: Path) -> None:
        """Write the folder that :meth:`load` reads."""
        coded = [text.encode("utf-8", "surrogatepass") for text in self.texts]
        ends = np.cumsum([len(text) for text in coded], dtype=np.int64)
        flat = np.frombuffer(b"".join(coded), dtype=np.uint8)
        targets = sparse.csr_matrix(self.targets, dtype=np.float32)
        write_part(folder, NAME, {"kind": NAME}, {"bytes": flat, "ends": ends, **pack("targets", targets)})

    @classmethod
    def load(cls, folder: Path) -> TrainRows:
        """Read what :meth:`save` wrote; texts are decoded one by one when asked for."""
        _, arrays = read_part(folder, NAME, (), _ARRAYS)
        return cls(_Packed(arrays["bytes"], arrays["ends"]), unpack("targets", arrays, folder))

    def rows_of(self, label: int) -> NDArray[np.int64]:
        """Return the rows that carry a label; none where it was added after training.

        >>> rows = TrainRows(["a", "b", "c"], sparse.csr_matrix([[1, 0], [0, 0], [1, 1]], dtype=np.float32))
        >>> rows.rows_of(0).tolist(), rows.rows_of(1).tolist(), rows.rows_of(9).tolist()
        ([0, 2], [2], [])
        """
        places = np.flatnonzero((self.targets.indices == label) & (self.targets.data > 0))
        return np.searchsorted(self.targets.indptr, places, side="right") - 1


class _Packed(Sequence[str]):
    """Texts in one array of bytes."""

    def __init__(self, flat: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.flat, self.ends = flat, ends

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place = range(len(self))[place]  # also from the end
        start = 0 if place == 0 else int(self.ends[place - 1])
        return self.flat[start : int(self.ends[place])].tobytes().decode("utf-8", "surrogatepass")
