"""The files of the page, read once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from fastapi import Request, Response

from megalabel.serve.problem import Problem

__all__ = ["StaticFiles"]

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


class StaticFiles:
    """All files under a folder by their names; nothing else can be asked for, whatever the path.

    >>> files = StaticFiles(Path(__file__).parent / "docs_page")
    >>> sorted(files.names)
    ['docs.css', 'docs.html', 'docs.js']
    """

    def __init__(self, folder: Path) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in _KINDS
        }

    @property
    def names(self) -> list[str]:
        """The names, with / between folders."""
        return list(self._files)

    def get(self, name: str, request: Request) -> Response:
        """Return a file, or that the browser has it already."""
        found = self._files.get(name)
        if found is None:
            raise Problem(404, "there is no such file")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.kind)


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _KINDS[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
