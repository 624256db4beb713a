"""How requests fail, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from megalabel.serve.bodies import Failure

__all__ = ["NOT_JSON", "UNKNOWN", "failures"]

NOT_JSON = {415: "The body is not sent as JSON."}
UNKNOWN = {404: "No label has this uid."}
_ANY = {
    400: "The request or its body cannot be read.",
    401: "The API key is missing or wrong.",
    403: "The Host, the Origin or the settings of the server forbid it.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    422: "The body or a parameter is not valid, or beyond a limit.",
    429: "Too much is waiting; Retry-After says when to try again.",
    500: "A fault of the server.",
    503: "The server is stopping.",
    504: "No answer in time.",
}


def failures(*more: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return what any route may answer in place of what was asked for, and what some may.

    >>> sorted(failures(UNKNOWN))[:4]
    [400, 401, 403, 404]
    """
    said = _ANY | {status: words for one in more for status, words in one.items()}
    return {status: {"model": Failure, "description": words} for status, words in sorted(said.items())}
