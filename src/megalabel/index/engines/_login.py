"""How to reach and log in to PostgreSQL: from the environment, and never into a file or a message."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from megalabel.errors import EngineError, MissingExtraError, SettingError

__all__ = ["GONE", "LOGIN", "connect", "driver", "first_line", "parse"]

URL = "MEGALABEL_PG_URL"
GONE = "the database {} does not answer"
LOGIN = f"set {URL}, or PGUSER and PGPASSWORD; see docs/indexes.md"
_SECONDS = 10  # to connect
_BAD_URL = "this is no URL of a PostgreSQL database"
_EXAMPLE = "for example postgresql://HOST:5432/DATABASE"


def connect(location: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Any:
    """Return a connection; ``given`` counts more than the environment, and that more than ``location``."""
    psycopg = driver()
    settings = {"connect_timeout": _SECONDS, **location, **parse(os.environ.get(URL, "")), **(given or {})}
    try:
        return psycopg.connect(**settings, autocommit=True, application_name="megalabel")
    except psycopg.Error as error:
        raise _refused(error, settings) from None


def driver() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError:
        raise MissingExtraError("psycopg", extra="pgvector", what="an index of kind pgvector") from None
    return psycopg


def parse(url: str) -> dict[str, Any]:
    """Return the parts of a URL or of settings as libpq reads them; an error never repeats them."""
    psycopg = driver()
    try:
        parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise SettingError(_BAD_URL, remedy=_EXAMPLE) from None
    ports, hosts = str(parts.get("port", "1")), str(parts.get("host", ""))
    if not re.fullmatch(r"\d*(,\d*)*", ports) or re.search(r"[@\s]", hosts):
        # a character of the password that is not written as %XX cuts the URL in the wrong place
        raise SettingError(_BAD_URL, remedy=f"{_EXAMPLE}; write special characters of a password as %XX")
    if "://" in url and urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise SettingError(_BAD_URL, remedy=_EXAMPLE)
    return parts


def _refused(error: Any, settings: Mapping[str, Any]) -> Exception:
    """Return the error for a connection that was not made."""
    parts = [str(settings[name]) for name in ("host", "port", "dbname") if name in settings]
    where = " ".join(parts) or "of the environment"
    reason = first_line(error)
    if re.search(r"no password supplied|authentication failed|role .* does not exist|no pg_hba", reason):
        return EngineError(f"the database {where} refuses this login", remedy=LOGIN)
    if re.search(r'database ".*" does not exist', reason):
        return EngineError(f"the database {where} does not exist", remedy="create it, or name another one")
    known = r"connection refused|timeout|timed out|no such file|resolve host|translate host|starting up|shutting down"
    shown = re.search(known, reason, re.IGNORECASE)
    why = f" ({shown.group().lower()})" if shown else ""
    return EngineError(f"{GONE.format(where)}{why}", remedy=f"start it, or check {URL} and the URL")


def first_line(error: Any) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")
