"""Encoders: texts in, vectors out."""

from megalabel.encoders.transformer import TransformerEncoder

__all__ = ["TransformerEncoder"]
