"""JSON as bytes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import orjson

__all__ = ["json_bytes"]


def json_bytes(document: Any) -> bytes:
    r"""Return a document as JSON; numbers that are not finite become null.

    >>> json_bytes({"text": "é", "score": float("-inf")}).decode()
    '{"text":"é","score":null}'
    >>> json_bytes(["half a pair \ud800"])
    b'["half a pair \\ud800"]'
    """
    try:
        return orjson.dumps(document)
    except TypeError:  # a text of the training that is not Unicode
        return json.dumps(document, separators=(",", ":"), default=asdict).encode()
