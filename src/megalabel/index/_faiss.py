"""The faiss package, loaded on first use, and conversions of arrays for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_rows", "borrowed", "faiss_threads", "left_over", "with_level"]

_LEVEL = 1e-3  # lengths that differ by less than this share count as equal


@contextmanager
def faiss_threads(limit: int | None = None, *, count: int | None = None) -> Iterator[Any]:
    """Yield the faiss package with as many threads as torch, at most ``limit``, or exactly ``count``."""
    import faiss

    before = faiss.omp_get_max_threads()
    threads = count or torch.get_num_threads()
    faiss.omp_set_num_threads(threads if limit is None else max(1, min(limit, threads)))
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)


def with_level(vectors: Tensor, multiple: int = 1) -> Tensor:
    """Return label vectors extended to equal length, so that the nearest ones have the largest product.

    If lengths differ, a column sqrt(max |v|^2 - |v|^2) is added (Bachrach et al., RecSys 2014);
    queries have 0 in it, so products do not change. Columns of zeros follow until the width is
    a multiple of ``multiple``.

    >>> with_level(torch.tensor([[3.0, 4.0], [3.0, 0.0]]))
    tensor([[3., 4., 0.],
            [3., 0., 4.]])
    """
    squares = torch.cat([part.to(torch.float64).square().sum(dim=1) for part in torch.split(vectors, 65_536)])
    longest = squares.max()
    level = bool(squares.min() < longest * (1 - _LEVEL) ** 2)
    width = -(-(vectors.shape[1] + level) // multiple) * multiple
    if width == vectors.shape[1]:
        return vectors
    wide = vectors.new_zeros((len(vectors), width))
    wide[:, : vectors.shape[1]] = vectors
    if level:
        wide[:, vectors.shape[1]] = (longest - squares).clamp_(min=0).sqrt_()
    return wide


def as_rows(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return queries [n, d] in the layout of faiss: contiguous, padded with zeros to ``width``."""
    if vectors.shape[1] < width:
        return np.pad(vectors, ((0, 0), (0, width - vectors.shape[1])))
    return vectors


def left_over(removed: NDArray[np.int64], labels: int) -> Any:
    """Return a faiss selector (one bit per label) of all labels but the removed ones."""
    import faiss

    package: Any = faiss
    left = np.ones(-(-labels // 8) * 8, dtype=np.bool_)
    left[removed] = False
    return package.IDSelectorBitmap(np.packbits(left, bitorder="little"))


def borrowed(owner: Any, flat: Any, rows: int, width: int) -> Tensor:
    """Return the vectors [rows, width] of a flat index inside ``owner``, without a copy; they keep the owner alive."""
    import faiss

    inner: Any = faiss.downcast_index(flat)
    values = faiss.rev_swig_ptr(inner.get_xb(), rows * width).reshape(rows, width)
    return torch.from_numpy(np.asarray(_Borrowed(owner, values)))


class _Borrowed:
    """The memory of an array, with a reference to its owner."""

    def __init__(self, owner: Any, values: NDArray[np.float32]) -> None:
        self.owner = owner
        self.__array_interface__ = values.__array_interface__
