"""Apply the augmentation of a recipe to the train rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from megalabel.encoders._source import folder_of, read_token_vectors, read_tokenizer
from megalabel.errors import SettingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["augment_and_tell", "augment_train"]


def augment_train(recipe: Recipe, data: Dataset, say: Callable[[str], None] | None = None) -> Dataset:
    """Return the set with augmented train rows; val, test and propensities do not change.

    Call it after validation rows are held out, and again with the original rows for a refit:
    augmented rows must never contain validation pairs.

    >>> from megalabel import load
    >>> from megalabel.recipes import load_recipe
    >>> data = load("synthetic:points=200,labels=50")
    >>> more = augment_train(load_recipe("unidec-cpu", ["augment=gandalf"]), data)
    >>> len(data.train), len(more.train)
    (160, 210)
    """
    settings = recipe.augment
    if settings is None:
        return data
    return settings.apply(data, seed=recipe.seed, token_table=_token_table, say=say)


def augment_and_tell(recipe: Recipe, data: Dataset, say: Callable[[str], None]) -> Dataset:
    """Do the same as :func:`augment_train`, and say how many rows there are now and what is known of their targets."""
    augmented = augment_train(recipe, data, say)
    if recipe.augment is not None:
        rows = f"{len(data.train):,} train texts become {len(augmented.train):,}"
        per_row = augmented.train.targets.nnz / len(augmented.train)
        say(f"{recipe.augment.kind}: {rows}, with {per_row:.2f} labels each")
    return augmented


def _token_table(source: str) -> tuple[NDArray[np.float32], list[str]]:
    """Return the token vectors [V, d] of a pretrained model and their tokens."""
    folder = folder_of(source)
    vectors = None if folder is None else read_token_vectors(folder)
    if folder is None or vectors is None:
        raise SettingError(f"augment.source {source!r} has no token vectors", remedy="give a model's folder, or minilm")
    tokens = [""] * len(vectors)
    for token, row in read_tokenizer(folder).get_vocab(with_added_tokens=False).items():
        tokens[row] = token
    return vectors.numpy(), tokens
