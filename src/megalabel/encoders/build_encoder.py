"""Make an encoder from its settings."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from megalabel.encoders.bag import BagEncoder
from megalabel.encoders.inception import InceptionEncoder
from megalabel.encoders.transformer import TransformerEncoder
from megalabel.errors import SettingError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megalabel.encoders._base import BaseEncoder

__all__ = ["build_encoder"]

KINDS: dict[str, type[BaseEncoder]] = {kind.kind: kind for kind in (BagEncoder, InceptionEncoder, TransformerEncoder)}


def build_encoder(config: Mapping[str, Any]) -> BaseEncoder:
    """Return a fresh encoder: ``kind`` names it, the other keys are the arguments of its constructor.

    >>> encoder = build_encoder({"kind": "bag", "source": None, "dim": 8, "words": 64, "bigrams": 0, "characters": 0})
    >>> build_encoder(encoder.config()).config() == encoder.config()
    True
    >>> build_encoder({"kind": "bog"})
    Traceback (most recent call last):
    megalabel.errors.SettingError: there is no encoder 'bog'; did you mean 'bag'?
    """
    settings = dict(config)
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        raise SettingError(f"there is no encoder {kind!r}", remedy=nearest(str(kind), KINDS))
    known = inspect.signature(KINDS[kind]).parameters
    for name in settings:
        if name not in known:
            raise SettingError(f"the encoder {kind!r} has no setting {name!r}", remedy=nearest(name, known))
    return KINDS[kind](**settings)
