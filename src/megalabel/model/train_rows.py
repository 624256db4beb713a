"""The training texts and their labels, saved with a model for its explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.data.arrays import Arrays
from megalabel.data.texts import Texts
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
_MORE = ["filter", "held"]  # models saved before these were kept have none


@dataclass(frozen=True)
class TrainRows:
    """Training texts [N] and relevance [N, L]; L is the number of labels at training time.

    On disk they take the bytes of the texts and 8 bytes per (text, label) pair. ``filter`` lists the (row, label)
    pairs that count neither as right nor as wrong, and ``held`` the rows that were held out for validation.
    """

    texts: Sequence[str]
    targets: sparse.csr_matrix
    filter: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))  # [n, 2]
    held: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # [m], ascending

    @classmethod
    def of(cls, data: Dataset) -> TrainRows:
        """Return the train rows of a data set, with those of validation.

        >>> from megalabel import load
        >>> from megalabel.data.hold_out import hold_out
        >>> data = hold_out(load("synthetic:points=300,labels=40"))
        >>> rows = TrainRows.of(data)
        >>> len(rows.texts), [rows.texts[row] for row in rows.held] == sorted(data.val.texts, key=rows.texts.index)
        (240, True)
        """
        if data.val is None:
            return cls(data.train.texts, data.train.targets, data.train.filter)
        known = data.refit().train
        places: dict[tuple[str, str], list[int]] = {key: [] for key in zip(data.val.uids, data.val.texts, strict=True)}
        for row, key in enumerate(zip(known.uids, known.texts, strict=True)):
            if key in places:
                places[key].append(row)
        held = [places[key].pop() for key in zip(data.val.uids, data.val.texts, strict=True)]  # of twins, any
        return cls(known.texts, known.targets, known.filter, np.sort(np.array(held, dtype=np.int64)))

    def save(self, folder: Path) -> None:
        """Write a folder for :meth:`load`."""
        packed = (self.texts if isinstance(self.texts, Texts) else Texts.of(self.texts)).pack()
        targets = sparse.csr_matrix(self.targets, dtype=np.float32)
        arrays: dict[str, NDArray[Any]] = {"bytes": packed["bytes"], "ends": packed["starts"][1:]}
        arrays |= {"filter": self.filter, "held": self.held}
        write_part(folder, NAME, {"kind": NAME}, arrays | pack("targets", targets))

    @classmethod
    def load(cls, folder: Path, content: Mapping[str, mmap] | None = None) -> TrainRows:
        """Read a folder of :meth:`save`, or what its files were when they were mapped; texts are decoded on access."""
        _, arrays = read_part(folder, NAME, (), [*_ARRAYS, *_MORE], _ARRAYS, content=content)
        more = {name: arrays[name] for name in _MORE if name in arrays}
        starts = np.concatenate([np.zeros(1, dtype=np.int64), arrays["ends"]])
        texts = Texts([Arrays({"bytes": arrays["bytes"], "starts": starts})])
        return cls(texts, unpack("targets", arrays, folder), **more)

    def rows_of(self, label: int) -> NDArray[np.int64]:
        """Return the rows with a label; an empty array for labels added after training.

        >>> rows = TrainRows(["a", "b", "c"], sparse.csr_matrix([[1, 0], [0, 0], [1, 1]], dtype=np.float32))
        >>> rows.rows_of(0).tolist(), rows.rows_of(1).tolist(), rows.rows_of(9).tolist()
        ([0, 2], [2], [])
        """
        cells = np.flatnonzero((self.targets.indices == label) & (self.targets.data > 0))
        return np.searchsorted(self.targets.indptr, cells, side="right") - 1
