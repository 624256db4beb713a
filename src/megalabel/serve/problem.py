"""Errors as the server tells them."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import HTTPException, Response

from megalabel.serve.json_bytes import json_bytes

__all__ = ["CODES", "Problem"]

CODES = {
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
}


class Problem(HTTPException):
    r"""What is wrong and what to do, in one line; the answer is ``{"error": {"code", "message", "where"}}``.

    Args:
        status: of the answer.
        message: one line.
        where: the part of the request that is wrong, such as ``texts[3]``.
        headers: of the answer.

    >>> Problem(404, "no label has the uid 'x'", where="uid").body()
    b'{"error":{"code":"not_found","message":"no label has the uid \'x\'","where":"uid"}}'
    """

    def __init__(
        self, status: int, message: str, *, where: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.message = " ".join(message.split())
        self.where = where

    def body(self) -> bytes:
        """Return the answer."""
        code = CODES.get(self.status_code, "internal" if self.status_code >= 500 else "bad_request")
        return json_bytes({"error": {"code": code, "message": self.message, "where": self.where}})

    def response(self) -> Response:
        """Return the answer with its status and headers."""
        return Response(self.body(), self.status_code, dict(self.headers or {}), "application/json")
