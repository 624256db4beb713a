"""Who may ask: names the server answers to, pages of other sites, the API key."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from megalabel.serve.problem import Problem
from megalabel.serve.settings import Settings

__all__ = ["Guard"]

_READING = {"GET", "HEAD", "OPTIONS"}
_OPEN = {"/", "/health", "/docs"}  # without a key: they say nothing of the model
_OPEN_FOLDERS = ("/page/", "/docs/")


class Guard:
    """Refuses requests before anything of them is read.

    A page of another site must not change labels or read answers through the browser of a user: its requests carry
    its own Origin, and a name made to lead here (DNS rebinding) is in Host.

    >>> guard = Guard(Settings(api_key="secret"))
    >>> guard.refuse("GET", "/labels", {"host": "localhost:8000", "x-api-key": "secret"}) is None
    True
    >>> guard.refuse("GET", "/labels", {"host": "evil.example", "x-api-key": "secret"}).status_code
    403
    """

    def __init__(self, settings: Settings) -> None:
        self.hosts = {name.lower().strip("[]").rstrip(".") for name in settings.hosts}
        self.any_address = settings.any_address
        self._key = None if settings.api_key is None else settings.api_key.encode()

    def refuse(self, method: str, path: str, headers: Mapping[str, str]) -> Problem | None:
        """Return why a request is not answered; None if it is. Header names are in lower case."""
        if not self._known(headers.get("host", "")):
            return Problem(403, "this server does not answer to this Host; see megalabel serve --allow-host")
        if method not in _READING and self._foreign(headers):
            return Problem(403, "a page of another site may not use this server")
        if self._key is None or path in _OPEN or path.startswith(_OPEN_FOLDERS) or self._has_key(headers):
            return None
        return Problem(
            401, "send the API key as Authorization: Bearer KEY or as X-API-Key", headers={"WWW-Authenticate": "Bearer"}
        )

    def _known(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        return "*" in self.hosts or name in self.hosts or (self.any_address and _is_address(name))

    def _foreign(self, headers: Mapping[str, str]) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        return origin.partition("://")[2].lower() != headers.get("host", "").lower()

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        given: Iterable[str] = (bearer.strip() if kind.lower() == "bearer" else "", headers.get("x-api-key", ""))
        assert self._key is not None
        found = [hmac.compare_digest(one.encode("latin-1", "replace"), self._key) for one in given]
        return any(found)


def _host_name(host: str) -> str | None:
    """Return the name in a Host header, without port, in lower case; None where it is none."""
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        _ = parts.port
    except ValueError:
        return None
    return None if name is None or parts.netloc != host or "@" in host else name.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
