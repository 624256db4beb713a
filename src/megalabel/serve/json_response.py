"""An answer in JSON."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from megalabel.serve.json_bytes import json_bytes

__all__ = ["JsonResponse"]


class JsonResponse(Response):
    """A document, or a dataclass, as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return it as bytes."""
        return json_bytes(content)
