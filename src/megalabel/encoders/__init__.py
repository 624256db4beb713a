"""Encoders: texts in, vectors out."""

from megalabel.encoders.bag import BagEncoder
from megalabel.encoders.build_encoder import build_encoder
from megalabel.encoders.inception import InceptionEncoder
from megalabel.encoders.load_encoder import load_encoder
from megalabel.encoders.sparse import SparseEncoder
from megalabel.encoders.transformer import TransformerEncoder

__all__ = ["BagEncoder", "InceptionEncoder", "SparseEncoder", "TransformerEncoder", "build_encoder", "load_encoder"]
