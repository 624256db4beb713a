"""What label spaces can be made from: the texts of a data set, their n-grams, and their vectors by an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from megalabel.network.fit import fit_ngrams
from megalabel.network.texts import TextTokens

if TYPE_CHECKING:
    import numpy as np
    import torch
    from scipy import sparse
    from torch import nn

    from megalabel.data.dataset import Dataset
    from megalabel.ranks import Ranks
    from megalabel.recipes.schema import Recipe

__all__ = ["SpaceSources"]


@dataclass(frozen=True)
class SpaceSources:
    """See :class:`megalabel.network.spaces.SpaceSources`; vectors are those of the first encoder.

    Args:
        recipe: the recipe of the stage.
        data: the data set.
        ranks: the processes that train together; each encodes its share.
        device: where to encode.
        encoders: returns the encoders the stage begins with.
    """

    recipe: Recipe
    data: Dataset
    ranks: Ranks
    device: torch.device
    encoders: Callable[[], Mapping[str, nn.Module]]

    @property
    def targets(self) -> sparse.csr_matrix:
        """The relevance [N, L] of the train rows."""
        return self.data.train.targets

    @property
    def seed(self) -> int:
        """The seed of the recipe."""
        return self.recipe.seed

    def points(self) -> np.ndarray[Any, Any]:
        """Return the vectors [N, d] of the train texts."""
        return self._encode(self.data.train.texts, self.recipe.encoder.query_length)

    def texts(self) -> np.ndarray[Any, Any]:
        """Return the vectors [L, d] of the label texts."""
        return self._encode(self.data.labels.texts, self.recipe.encoder.label_length)

    def ngrams(self) -> sparse.csr_matrix:
        """Return the n-grams [N, n] of the train texts."""
        return fit_ngrams(self.recipe.ngrams.options(), self.data).encode(self.data.train.texts)

    def _encode(self, texts: Sequence[str], max_length: int | None) -> np.ndarray[Any, Any]:
        name = next(iter(self.recipe.encoders))
        encoder: Any = self.encoders()[name].to(self.device)
        tokens = self.ranks.rank0_first(lambda: TextTokens.stored(texts, {name: encoder}))[name]
        own = self.ranks.share(len(tokens))
        part = encoder.encode(tokens.cut(own.start, own.stop), max_length=max_length)
        vectors: np.ndarray[Any, Any] = self.ranks.gather(part, self.ranks.sizes(len(tokens))).numpy()
        return vectors
