"""From what a recipe says of its encoder to the encoder itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megalabel.data.tokens import store_tokens
from megalabel.encoders.bag import BagEncoder
from megalabel.encoders.transformer import TransformerEncoder
from megalabel.errors import SettingError

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["make_encoder"]


def make_encoder(recipe: Recipe, data: Dataset) -> BagEncoder | TransformerEncoder:
    """Return the encoder at its start; a bag takes its idf weights from train and label texts."""
    settings = recipe.encoder
    options = {"seed": recipe.seed, **settings.options} if settings.kind == "bag" else settings.options
    try:
        if settings.kind == "transformer":
            return TransformerEncoder(settings.source or "minilm", **options)  # type: ignore[arg-type]
        bag = BagEncoder(settings.source, **options)  # type: ignore[arg-type]
    except TypeError as error:
        raise SettingError(f"encoder.options: {error}", remedy="see the arguments of the encoder's class") from None
    return bag.fit(store_tokens(data.train.texts, bag) + store_tokens(data.labels.texts, bag))
