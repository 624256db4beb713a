"""Fit the heads that train no encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.augment.gandalf import gandalf
from megalabel.data.tokens import store_tokens
from megalabel.encoders.sparse import SparseEncoder
from megalabel.heads.hard_negatives import hard_negatives
from megalabel.heads.linear import Linear
from megalabel.heads.memory import Memory
from megalabel.heads.overlap import Overlap
from megalabel.training.fitted import NGRAMS, Fitted
from megalabel.training.vectors import query_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Split
    from megalabel.recipes.schema import FittedSettings, Recipe
    from megalabel.training.network import Network

__all__ = ["fit_heads"]

SHORT = 20  # words of a text on average


def fit_heads(recipe: Recipe, network: Network, data: Dataset, say: Callable[[str], None]) -> Fitted:
    """Return the heads under ``fitted`` of a recipe, fitted on the train rows of a set without augmentation.

    Label texts become rows where a head's ``labels`` says so; see
    :func:`megalabel.augment.gandalf`. Points of a label are counted with those of a validation
    part that was held out: it never takes the last one, so that of the labels with few points
    left, too many would be right in it.
    """
    of = {name: settings.reads for name, settings in recipe.fitted.items()}
    ngrams = None
    if NGRAMS in of.values():
        options = _ngrams(data.train.texts) | recipe.ngrams
        ngrams = SparseEncoder(**options).fit([*data.train.texts, *data.labels.texts])
    heads: dict[str, Memory | Linear | Overlap] = {}
    rows = _Rows(recipe, network, ngrams)
    for name, settings in recipe.fitted.items():
        say(f"fitting {name}")
        if settings.kind == "overlap":
            heads[name] = Overlap(side=settings.side, half=settings.half).fit(data.train.texts, data.labels.texts)
            continue
        train = _with_labels(data, settings, recipe.seed)
        vectors, targets = rows.of(settings.of, train), train.without(train.filter).targets
        if settings.kind == "memory":
            memory = Memory(nearest=settings.nearest, power=settings.power, common=settings.common)
            heads[name] = memory.fit(vectors, targets)
        else:
            assert sparse.issparse(vectors)
            exclude = train.excluded()
            memory = Memory(common=settings.common).fit(vectors, targets)
            negatives = hard_negatives(memory, vectors, targets, exclude, per_row=settings.mined)
            linear = Linear(
                C=settings.C, prune=settings.prune, uniform=settings.uniform, rounds=settings.rounds, seed=recipe.seed
            )
            heads[name] = linear.fit(vectors, targets, negatives, exclude)
    rows_known = data.train if data.before is None else data.before.train
    known = rows_known.without(rows_known.filter).targets
    counts = np.bincount(known.indices, minlength=len(data.labels)).astype(np.int64)
    return Fitted(counts, heads, of, ngrams)


def _ngrams(texts: Sequence[str]) -> dict[str, Any]:
    """Return options for n-grams: those of characters only where texts are short, so that words alone say little."""
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    return {} if words <= SHORT else {"characters": 0}


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
                self._made[key] = query_side(self.network, tokens)[what].cpu().numpy()
        return self._made[key]


def _with_labels(data: Dataset, settings: FittedSettings, seed: int) -> Split:
    """Return the train rows, with label texts as rows if the head wants them."""
    if settings.labels == "none":
        return data.train
    kind = "self" if settings.labels == "self" else "conditional"
    return gandalf(data, targets=kind, max_targets=settings.most, seed=seed).train  # type: ignore[arg-type]
