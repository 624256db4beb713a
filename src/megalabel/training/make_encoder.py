"""From what a recipe says of its encoder to the encoder itself."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from megalabel.data.tokens import store_tokens
from megalabel.encoders.bag import BagEncoder
from megalabel.encoders.inception import InceptionEncoder
from megalabel.encoders.transformer import TransformerEncoder
from megalabel.errors import SettingError, nearest

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["make_encoder"]


_KINDS = {"bag": BagEncoder, "inception": InceptionEncoder, "transformer": TransformerEncoder}


def make_encoder(recipe: Recipe, data: Dataset) -> BagEncoder | InceptionEncoder | TransformerEncoder:
    """Return the encoder at its start; token tables take their idf weights from train and label texts."""
    settings = recipe.encoder
    kind = _KINDS[settings.kind]
    options: dict[str, Any] = {"seed": recipe.seed, **settings.options}
    _check(kind, settings.options)
    source = settings.source or "minilm" if settings.kind == "transformer" else settings.source
    try:
        encoder: BagEncoder | InceptionEncoder | TransformerEncoder = kind(source, **options)
    except TypeError as error:
        raise SettingError(f"encoder.options: {error}", remedy="see the arguments of the encoder's class") from None
    if isinstance(encoder, TransformerEncoder):
        return encoder
    return encoder.fit(store_tokens(data.train.texts, encoder), store_tokens(data.labels.texts, encoder))


def _check(kind: type, options: dict[str, Any]) -> None:
    """Raise a SettingError for an option that the encoder's class does not have, or not of this type."""
    known = {name: part for name, part in inspect.signature(kind).parameters.items() if name != "source"}
    for name, value in options.items():
        if name not in known:
            raise SettingError(f"unknown key 'encoder.options.{name}'", remedy=nearest(name, known))
        usual = known[name].default
        if isinstance(usual, bool | str):
            wanted, fits = ("true or false", bool) if isinstance(usual, bool) else ("a word", str)
            good = isinstance(value, fits)
        else:
            whole = isinstance(usual, int)
            wanted = "a whole number" if whole else "a number"
            good = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not good:
            raise SettingError(f"encoder.options.{name} is {value!r}", remedy=f"it must be {wanted}")
