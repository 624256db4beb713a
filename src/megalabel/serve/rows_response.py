"""An answer made of many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastapi import Response
from starlette.types import Receive, Scope, Send

__all__ = ["RowsResponse"]

_PIECE = 1 << 18  # bytes sent at a time


class RowsResponse(Response):
    """``{"predictions": [row, row, ...]}``, sent in pieces so that a large answer is never held twice.

    >>> response = RowsResponse([b"[1]", b"[2]"])
    >>> b"".join(response.pieces()), response.headers["content-length"]
    (b'{"predictions":[[1],[2]]}', '25')
    """

    media_type = "application/json"

    def __init__(self, rows: Sequence[bytes]) -> None:
        super().__init__()
        self.rows = rows
        size = sum(map(len, rows)) + max(0, len(rows) - 1) + len('{"predictions":[]}')
        self.headers["content-length"] = str(size)

    def pieces(self) -> Iterator[bytes]:
        """Yield the answer piece by piece."""
        piece = bytearray(b'{"predictions":[')
        for place, row in enumerate(self.rows):
            if len(piece) >= _PIECE:
                yield bytes(piece)
                piece = bytearray()
            if place:
                piece += b","
            piece += row
        yield bytes(piece + b"]}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        piece: bytes | None = None
        for following in self.pieces():
            if piece is not None:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = following
        await send({"type": "http.response.body", "body": piece, "more_body": False})
