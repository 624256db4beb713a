"""Answers in JSON: documents, rows of predictions, and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from fastapi import HTTPException, Response
from starlette.types import Receive, Scope, Send

__all__ = ["ERROR_CODES", "JsonResponse", "Problem", "RowsResponse", "json_bytes"]

ERROR_CODES = {
    400: "bad_request",
    401: "unauthorised",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "busy",
    431: "too_large",
    500: "internal",
    503: "stopping",
    504: "timeout",
    507: "not_saved",
}
_CHUNK_BYTES = 1 << 18


def json_bytes(document: Any) -> bytes:
    r"""Return a document as JSON; non-finite numbers become null.

    >>> json_bytes({"text": "é", "score": float("-inf")}).decode()
    '{"text":"é","score":null}'
    >>> json_bytes(["lone surrogate \ud800"])
    b'["lone surrogate \\ud800"]'
    """
    try:
        return orjson.dumps(document)
    except TypeError:  # a training text with invalid Unicode
        return json.dumps(document, separators=(",", ":"), default=asdict).encode()


class JsonResponse(Response):
    """A document or a dataclass as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the content as bytes."""
        return json_bytes(content)


class RowsResponse(Response):
    """``{"predictions": [row, row, ...]}``, sent in chunks so that a large answer is never copied in memory.

    The threshold that the rows were cut at, if there is one, follows under ``threshold``.

    >>> response = RowsResponse([b"[1]", b"[2]"])
    >>> b"".join(response.chunks()), response.headers["content-length"]
    (b'{"predictions":[[1],[2]]}', '25')
    >>> b"".join(RowsResponse([b"[1]"], {"value": 0.5}).chunks())
    b'{"predictions":[[1]],"threshold":{"value":0.5}}'
    """

    media_type = "application/json"

    def __init__(self, rows: Sequence[bytes], threshold: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.rows = rows
        self.end = b"]}" if threshold is None else b'],"threshold":' + json_bytes(threshold) + b"}"
        size = sum(map(len, rows)) + max(0, len(rows) - 1) + len('{"predictions":[') + len(self.end)
        self.headers["content-length"] = str(size)

    def chunks(self) -> Iterator[bytes]:
        """Yield the body chunk by chunk."""
        chunk = bytearray(b'{"predictions":[')
        for index, row in enumerate(self.rows):
            if len(chunk) >= _CHUNK_BYTES:
                yield bytes(chunk)
                chunk = bytearray()
            if index:
                chunk += b","
            chunk += row
        yield bytes(chunk + self.end)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        previous: bytes | None = None
        for chunk in self.chunks():
            if previous is not None:
                await send({"type": "http.response.body", "body": previous, "more_body": True})
            previous = chunk
        await send({"type": "http.response.body", "body": previous, "more_body": False})


class Problem(HTTPException):
    r"""An error: one line that says what is wrong and what to do.

    The body of the answer is ``{"error": {"code", "message", "where"}}``.

    Args:
        status: the HTTP status.
        message: one line.
        where: the invalid part of the request, such as ``texts[3]``.
        headers: extra headers of the answer.
        code: the code of the error, if not that of the status.

    >>> Problem(404, "no label has the uid 'x'", where="uid").body()
    b'{"error":{"code":"not_found","message":"no label has the uid \'x\'","where":"uid"}}'
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        where: str | None = None,
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.message = " ".join(message.split())
        self.where = where
        self.code = code or ERROR_CODES.get(status, "internal" if status >= 500 else "bad_request")

    def body(self) -> bytes:
        """Return the body of the answer."""
        return json_bytes({"error": {"code": self.code, "message": self.message, "where": self.where}})

    def response(self) -> Response:
        """Return the answer with its status and headers."""
        return Response(self.body(), self.status_code, dict(self.headers or {}), "application/json")
