"""The page, the documentation of the API, and their files."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request, Response

from megalabel.serve.static_files import StaticFiles

__all__ = ["add_pages"]

_HERE = Path(__file__).parent


def add_pages(app: FastAPI) -> None:
    """Add the routes that a browser asks for; none of them leads off this machine."""
    page, docs = StaticFiles(_HERE / "page"), StaticFiles(_HERE / "docs_page")

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return page.get("index.html", request)

    @app.get("/page/{name:path}", include_in_schema=False)
    async def file(name: str, request: Request) -> Response:
        return page.get(name, request)

    @app.get("/docs", include_in_schema=False)
    async def documentation(request: Request) -> Response:
        return docs.get("docs.html", request)

    @app.get("/docs/{name:path}", include_in_schema=False)
    async def documentation_file(name: str, request: Request) -> Response:
        return docs.get(name, request)
