"""Fit the heads that train no encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.augment.gandalf import gandalf
from megalabel.data.tokens import store_tokens
from megalabel.encoders.sparse import SparseEncoder
from megalabel.heads.hard_negatives import hard_negatives
from megalabel.heads.linear import Linear
from megalabel.heads.memory import Memory
from megalabel.training.fitted import NGRAMS, Fitted
from megalabel.training.vectors import query_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Split
    from megalabel.recipes.schema import FittedSettings, Recipe
    from megalabel.training.network import Network

__all__ = ["fit_heads"]


def fit_heads(recipe: Recipe, network: Network, data: Dataset, say: Callable[[str], None]) -> Fitted:
    """Return the heads under ``fitted`` of a recipe, fitted on the train rows of a set without augmentation.

    Label texts become rows where a head's ``labels`` says so; see
    :func:`megalabel.augment.gandalf`.
    """
    of = {name: settings.of for name, settings in recipe.fitted.items()}
    ngrams = None
    if NGRAMS in of.values():
        ngrams = SparseEncoder(**recipe.ngrams).fit([*data.train.texts, *data.labels.texts])  # type: ignore[arg-type]
    heads: dict[str, Memory | Linear] = {}
    rows = _Rows(recipe, network, ngrams)
    for name, settings in recipe.fitted.items():
        say(f"fitting {name}")
        train = _with_labels(data, settings, recipe.seed)
        vectors, targets = rows.of(settings.of, train), train.without(train.filter).targets
        if settings.kind == "memory":
            heads[name] = Memory(nearest=settings.nearest, power=settings.power).fit(vectors, targets)
        else:
            assert sparse.issparse(vectors)
            exclude = train.excluded()
            negatives = hard_negatives(
                Memory().fit(vectors, targets), vectors, targets, exclude, per_row=settings.mined
            )
            linear = Linear(
                C=settings.C, prune=settings.prune, uniform=settings.uniform, rounds=settings.rounds, seed=recipe.seed
            )
            heads[name] = linear.fit(vectors, targets, negatives, exclude)
    known = data.train.without(data.train.filter).targets
    counts = np.bincount(known.indices, minlength=len(data.labels)).astype(np.int64)
    return Fitted(counts, heads, of, ngrams)


class _Rows:
    """Train texts as each head reads them, made once."""

    def __init__(self, recipe: Recipe, network: Network, ngrams: SparseEncoder | None) -> None:
        self.recipe, self.network, self.ngrams = recipe, network, ngrams
        self._made: dict[tuple[str, int], sparse.csr_matrix | NDArray[np.float32]] = {}

    def of(self, what: str, split: Split) -> sparse.csr_matrix | NDArray[np.float32]:
        """Return n-grams [N, F] or the query vectors [N, d] of a head."""
        key = what, len(split)  # a set is train alone or train and all label texts
        if key not in self._made:
            if what == NGRAMS:
                assert self.ngrams is not None
                self._made[key] = self.ngrams.encode(split.texts)
            else:
                tokens = store_tokens(split.texts, self.network.encoder)  # type: ignore[arg-type]
                self._made[key] = query_side(self.network, tokens)[what].numpy()
        return self._made[key]


def _with_labels(data: Dataset, settings: FittedSettings, seed: int) -> Split:
    """Return the train rows, with label texts as rows if the head wants them."""
    if settings.labels == "none":
        return data.train
    kind = "self" if settings.labels == "self" else "conditional"
    return gandalf(data, targets=kind, most=settings.most, seed=seed).train  # type: ignore[arg-type]
