"""Limits and options of the server."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from megalabel.errors import SettingError

__all__ = ["LOOPBACK", "Settings"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a server takes and does; all counts are at least 1.

    Work that waits is counted in texts of common size: a text counts as one, and one more for every 5,000
    characters and every 500 labels asked for.

    >>> Settings(texts=0)
    Traceback (most recent call last):
    megalabel.errors.SettingError: texts must be at least 1, not 0
    """

    texts: int = 1_000  # in one request
    k: int = 1_000  # labels for one text
    text_characters: int = 100_000
    body_bytes: int = 16 << 20
    held_bytes: int = 512 << 20  # bodies and answers of all requests together
    requests: int = 1_024  # at once
    added: int = 100_000  # labels added since the start
    queue: int = 4_096  # texts that wait
    batch: int = 256  # texts in one call of the model
    share: int = 32  # of these, texts of one request
    batched: bool = True  # texts of several requests in one call
    timeout: float = 30.0  # seconds to read a request, to answer it, and to send a part of the answer
    header_seconds: float = 10.0  # to send the head of a request
    header_bytes: int = 1 << 16
    read_only: bool = False  # labels stay as they are
    save: Path | None = None  # where changed labels are saved; None keeps them in memory
    api_key: str | None = None
    hosts: tuple[str, ...] = LOOPBACK  # names the server answers to; "*" is any
    any_address: bool = False  # it also answers to numeric addresses
    log_requests: bool = False

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is int and value < 1:
                raise SettingError(f"{one.name} must be at least 1, not {value}")
            if type(value) is float and not 0 < value < 1e6:
                raise SettingError(f"{one.name} must be above 0, not {value:g}")
        if self.save is not None and self.read_only:
            raise SettingError("labels are either saved or read-only", remedy="leave out --save or --read-only")
        if self.api_key is not None and not self.api_key.isascii():
            raise SettingError("an API key must be ASCII", remedy="choose another")
