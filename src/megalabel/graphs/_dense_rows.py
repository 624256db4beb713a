"""Dense vectors as rows for two_means, on their device."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import embedding_bag, normalize

from megalabel.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["DenseRows"]


class DenseRows:
    """Vectors [N, d], scaled to unit length in each product; copied only if they are not float32.

    Products and sums run on the device of the vectors; axes are a tensor [G, d].
    """

    def __init__(self, vectors: Tensor | NDArray[np.floating]) -> None:
        rows = torch.as_tensor(vectors).detach().to(torch.float32).contiguous()
        if rows.device.type not in ("cpu", "cuda"):
            rows = rows.cpu()  # only CPU and CUDA have sampled products
        if rows.ndim != 2:
            raise DataError(f"vectors must be a matrix [N, d], not {tuple(rows.shape)}")
        lengths = torch.linalg.vector_norm(rows, dim=1)
        if not bool(torch.isfinite(lengths).all()):
            raise DataError("a vector to cluster holds NaN or infinity")
        self.vectors, self.scale = rows, torch.where(lengths > 0, 1 / lengths, 0.0)

    def __len__(self) -> int:
        return len(self.vectors)

    def differences(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Tensor:
        """Return row ``first`` minus row ``second`` for each pair."""
        left, right = (self._move(which) for which in (first, second))
        return self.vectors[left] * self.scale[left, None] - self.vectors[right] * self.scale[right, None]

    def take(self, axes: Tensor, which: NDArray[np.int64]) -> Tensor:
        """Return some of the axes."""
        return axes[self._move(which)]

    def put(self, axes: Tensor, which: NDArray[np.int64], new: Tensor) -> None:
        """Replace some of the axes."""
        axes[self._move(which)] = new

    def along(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: Tensor) -> NDArray[np.floating]:
        """Return the product [n] of each row with the axis of its group."""
        starts = np.zeros(len(self.vectors) + 1, dtype=np.int64)
        starts[rows + 1] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch warns that its sparse tensors are beta
            pattern = torch.sparse_csr_tensor(
                self._move(np.cumsum(starts)),
                self._move(group),
                torch.zeros(len(rows), device=self.vectors.device),
                size=(len(self.vectors), len(axes)),
                check_invariants=False,
            )
            products = torch.sparse.sampled_addmm(pattern, self.vectors, axes.T, beta=0.0).values()
        scaled: NDArray[np.floating] = (products * self.scale[self._move(rows)]).cpu().numpy()
        return scaled

    def halves(self, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.floating]]:
        """Return the axes between neighbouring means, and the length of the sums of rows [2 G]."""
        which = self._move(rows)
        scale = self.scale[which]
        sums = embedding_bag(which, self.vectors, self._move(starts), mode="sum", per_sample_weights=scale)
        lengths: NDArray[np.floating] = torch.linalg.vector_norm(sums, dim=1).cpu().numpy()
        return normalize(sums[0::2]) - normalize(sums[1::2]), lengths

    def _move(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.vectors.device)
