"""Read an encoder from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from megalabel.encoders._base import SETTINGS, BaseEncoder
from megalabel.encoders.build_encoder import build_encoder
from megalabel.errors import DataError
from megalabel.files import need

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["load_encoder"]


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
    try:
        settings = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise DataError(f"the settings cannot be read ({error})", path=path) from error
    if not isinstance(settings, dict) or "source" not in settings:
        raise DataError("these are not the settings of an encoder", path=path)
    encoder = build_encoder({**settings, "source": str(folder)})
    encoder.source = settings["source"]
    return encoder
