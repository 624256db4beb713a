"""Search: vectors in, the best k labels out."""

from megalabel.index.exact import ExactIndex

__all__ = ["ExactIndex"]
