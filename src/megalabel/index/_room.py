"""Memory that label vectors can grow in."""

from __future__ import annotations

from threading import Lock

from torch import Tensor

__all__ = ["Room"]

_SHARE, _LEAST = 8, 64  # room for new labels: an eighth of those there are, and some


class Room:
    """Vectors with free places behind them; indexes that grew out of one another share it."""

    def __init__(self, vectors: Tensor, more: Tensor) -> None:
        self.used = len(vectors) + len(more)
        self.vectors = vectors.new_empty((self.used + self.used // _SHARE + _LEAST, vectors.shape[1]))
        self.vectors[: len(vectors)] = vectors
        self.vectors[len(vectors) : self.used] = more
        self._lock = Lock()

    def append(self, start: int, vectors: Tensor) -> bool:
        """Write vectors from ``start`` on; False where these places are taken or there are too few."""
        with self._lock:
            if start != self.used or start + len(vectors) > len(self.vectors):
                return False
            self.vectors[start : start + len(vectors)] = vectors
            self.used = start + len(vectors)
            return True
