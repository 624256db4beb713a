"""Settings of the server."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from megalabel.errors import SettingError

__all__ = ["LOOPBACK", "Settings", "project_id"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and options of a server; all counts are at least 1.

    The queue is measured in texts of common size: a text counts as one, plus one for every 5,000 characters and every
    500 labels requested.

    >>> Settings(texts=0)
    Traceback (most recent call last):
    megalabel.errors.SettingError: texts must be at least 1, not 0
    """

    texts: int = 1_000  # per request
    k: int = 1_000  # labels per text
    text_characters: int = 100_000
    body_bytes: int = 16 << 20
    held_bytes: int = 512 << 20  # bodies and answers of all requests together
    requests: int = 1_024  # at the same time
    connections: int = 4_096  # at the same time, with or without requests
    added: int = 100_000  # labels added while the server runs
    queue: int = 4_096  # texts that may wait
    batch: int = 256  # texts per call of the model
    share: int = 32  # texts of one request per call
    batched: bool = True  # put texts of several requests into one call
    timeout: float = 30.0  # seconds to read a body, to answer, and to send a part of the answer
    header_seconds: float = 10.0  # for the client to send the request headers
    header_bytes: int = 1 << 16
    read_only: bool = False  # refuse changes of labels
    save: Path | None = None  # where to save changed labels; None keeps them in memory
    api_key: str | None = None
    hosts: tuple[str, ...] = LOOPBACK  # allowed Host names; "*" allows any
    any_address: bool = False  # also allow numeric addresses as Host
    log_requests: bool = False
    annif: str | None = None  # offer the routes of Annif's API, with this as the id of the project
    language: str = "en"  # of the labels, for these routes

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is int and value < 1:
                raise SettingError(f"{field.name} must be at least 1, not {value}")
            if type(value) is float and not 0 < value < 1e6:
                raise SettingError(f"{field.name} must be above 0, not {value:g}")
        if self.save is not None and self.read_only:
            raise SettingError("labels cannot be both saved and read-only", remedy="omit --save or --read-only")
        if self.api_key is not None and not self.api_key.isascii():
            raise SettingError("an API key must be ASCII", remedy="choose another key")


def project_id(name: str) -> str:
    """Return the id of a project named after a run.

    Annif finds the project of an endpoint by dropping ``/suggest`` from its address, so no id begins with that.

    >>> project_id("my run, 2"), project_id("suggest")
    ('my-run-2', 'run-suggest')
    """
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else " " for char in name)
    name = "-".join(kept.split()) or "megalabel"
    return f"run-{name}" if name.startswith("suggest") else name
