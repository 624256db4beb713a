"""Encoders: texts in, vectors out. Names load on first use, so that settings can be read without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megalabel.encoders.bag import BagEncoder
    from megalabel.encoders.build import build_encoder, load_encoder
    from megalabel.encoders.inception import InceptionEncoder
    from megalabel.encoders.inceptionxml import InceptionXMLEncoder
    from megalabel.encoders.sparse import SparseEncoder
    from megalabel.encoders.transformer import TransformerEncoder

_HOME = {
    "BagEncoder": "bag",
    "InceptionEncoder": "inception",
    "InceptionXMLEncoder": "inceptionxml",
    "SparseEncoder": "sparse",
    "TransformerEncoder": "transformer",
    "build_encoder": "build",
    "load_encoder": "build",
}

__all__ = [
    "BagEncoder",
    "InceptionEncoder",
    "InceptionXMLEncoder",
    "SparseEncoder",
    "TransformerEncoder",
    "build_encoder",
    "load_encoder",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
