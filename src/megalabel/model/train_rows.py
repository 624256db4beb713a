"""The training texts and their labels, saved with a model for its explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
from scipy import sparse

from megalabel.encoders._arrays import read_part, write_part
from megalabel.heads.sparse.rows import PARTS, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from mmap import mmap
    from pathlib import Path

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset

__all__ = ["TrainRows"]

NAME = "train"
_ARRAYS = ["bytes", "ends", *(f"targets.{part}" for part in PARTS)]


@dataclass(frozen=True)
class TrainRows:
    """Training texts [N] and relevance [N, L]; L is the number of labels at training time.

    On disk they take the bytes of the texts and 8 bytes per (text, label) pair.
    """

    texts: Sequence[str]
    targets: sparse.csr_matrix

    @classmethod
    def of(cls, data: Dataset) -> TrainRows:
        """Return the train rows of a data set, including rows held out for validation."""
        train = data.train if data.before is None else data.before.train
        return cls(train.texts, train.targets)

    def save(self, folder: Path) -> None:
        """Write a folder for :meth:`load`."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in self.texts]
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
        flat = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        targets = sparse.csr_matrix(self.targets, dtype=np.float32)
        write_part(folder, NAME, {"kind": NAME}, {"bytes": flat, "ends": ends, **pack("targets", targets)})

    @classmethod
    def load(cls, folder: Path, content: Mapping[str, mmap] | None = None) -> TrainRows:
        """Read a folder of :meth:`save`, or what its files were when they were mapped; texts are decoded on access."""
        _, arrays = read_part(folder, NAME, (), _ARRAYS, content=content)
        return cls(_PackedTexts(arrays["bytes"], arrays["ends"]), unpack("targets", arrays, folder))

    def rows_of(self, label: int) -> NDArray[np.int64]:
        """Return the rows with a label; an empty array for labels added after training.

        >>> rows = TrainRows(["a", "b", "c"], sparse.csr_matrix([[1, 0], [0, 0], [1, 1]], dtype=np.float32))
        >>> rows.rows_of(0).tolist(), rows.rows_of(1).tolist(), rows.rows_of(9).tolist()
        ([0, 2], [2], [])
        """
        cells = np.flatnonzero((self.targets.indices == label) & (self.targets.data > 0))
        return np.searchsorted(self.targets.indptr, cells, side="right") - 1


class _PackedTexts(Sequence[str]):
    """Texts in one array of bytes."""

    def __init__(self, flat: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.flat, self.ends = flat, ends

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        row = range(len(self))[row]  # negative rows count from the end
        start = 0 if row == 0 else int(self.ends[row - 1])
        return self.flat[start : int(self.ends[row])].tobytes().decode("utf-8", "surrogatepass")
