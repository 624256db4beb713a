"""Make any text safe to stand in a page."""

from __future__ import annotations

import re
from html import escape

__all__ = ["escaped"]

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def escaped(text: str) -> str:
    """Return text for HTML, inside an element or a quoted attribute; what no page may hold becomes U+FFFD.

    >>> escaped('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return escape(_CONTROL.sub("\ufffd", text))
