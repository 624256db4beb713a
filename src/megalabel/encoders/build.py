"""Build an encoder from its settings, or load a saved one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megalabel.documents import read_json, reads_saved
from megalabel.encoders._base import SETTINGS, BaseEncoder
from megalabel.encoders.bag import BagEncoder
from megalabel.encoders.inception import InceptionEncoder
from megalabel.encoders.inceptionxml import InceptionXMLEncoder
from megalabel.encoders.transformer import TransformerEncoder
from megalabel.errors import DataError, SettingError, nearest
from megalabel.files import need

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

__all__ = ["build_encoder", "load_encoder"]

KINDS: dict[str, type[BaseEncoder]] = {
    kind.kind: kind for kind in (BagEncoder, InceptionEncoder, InceptionXMLEncoder, TransformerEncoder)
}


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


@reads_saved
def load_encoder(folder: str | PathLike[str]) -> BaseEncoder:
    """Return the encoder that ``encoder.save(folder)`` wrote; nothing outside the folder is read.

    >>> import tempfile
    >>> from megalabel.encoders import BagEncoder
    >>> encoder = BagEncoder(None, dim=8, words=64, bigrams=0, characters=0)
    >>> folder = tempfile.mkdtemp()
    >>> encoder.save(folder)
    >>> tokens = encoder.tokenise(["red shoe"])
    >>> bool((load_encoder(folder).encode(tokens) == encoder.encode(tokens)).all())
    True
    """
    path = need(Path(folder), SETTINGS)
    settings = read_json(path)
    if "source" not in settings:
        raise DataError("these are not the settings of an encoder", path=path)
    old = {"split": "spaces"} if settings.get("kind") == BagEncoder.kind else {}  # a model older than this setting
    encoder = build_encoder({**old, **settings, "source": str(folder)})
    encoder.source = settings["source"]
    return encoder
