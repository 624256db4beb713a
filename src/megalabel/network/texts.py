"""Texts tokenised for every encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from megalabel.data.tokens import store_tokens
from megalabel.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

__all__ = ["TextTokens"]


@dataclass(frozen=True)
class TextTokens:
    """The same texts, tokenised for each encoder by name.

    >>> import numpy as np
    >>> tokens = Tokens(np.array([7, 8, 9], dtype=np.uint16), np.array([0, 1, 3]))
    >>> texts = TextTokens({"encoder": tokens})
    >>> len(texts), texts.take(np.array([1]))["encoder"].ids.tolist()
    (2, [8, 9])
    """

    by_encoder: Mapping[str, Tokens]

    @classmethod
    def stored(cls, texts: Sequence[str], encoders: Mapping[str, nn.Module]) -> TextTokens:
        """Tokenise through the token store: tokens are computed once and mapped from disk."""
        return cls._by(lambda encoder: store_tokens(texts, encoder), encoders)

    @classmethod
    def of(cls, texts: Sequence[str], encoders: Mapping[str, nn.Module]) -> TextTokens:
        """Tokenise in memory."""
        return cls._by(lambda encoder: encoder.tokenise(texts), encoders)

    @classmethod
    def _by(cls, tokenise: Callable[[Any], Tokens], encoders: Mapping[str, nn.Module]) -> TextTokens:
        """Tokenise once for all encoders with the same tokenisation."""
        known: dict[str, Tokens] = {}
        by_encoder = {}
        for name, encoder in encoders.items():
            key = encoder.fingerprint() if len(encoders) > 1 else ""  # type: ignore[operator]
            by_encoder[name] = known[key] if key in known else known.setdefault(key, tokenise(encoder))
        return cls(by_encoder)

    def __len__(self) -> int:
        return len(next(iter(self.by_encoder.values())))

    def __getitem__(self, encoder: str) -> Tokens:
        return self.by_encoder[encoder]

    def __add__(self, other: TextTokens) -> TextTokens:
        """Return the texts of both, one after the other."""
        return TextTokens({name: tokens + other[name] for name, tokens in self.by_encoder.items()})

    def take(self, rows: NDArray[np.integer[Any]] | Sequence[int]) -> TextTokens:
        """Return texts ``rows`` in that order."""
        return TextTokens({name: tokens.take(rows) for name, tokens in self.by_encoder.items()})

    def cut(self, start: int, stop: int) -> TextTokens:
        """Return texts ``start`` to ``stop``; nothing is copied."""
        return TextTokens({name: tokens.cut(start, stop) for name, tokens in self.by_encoder.items()})
