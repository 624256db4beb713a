"""The server as an ASGI app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from megalabel.errors import MegalabelError
from megalabel.serve.add_labels import add_labels
from megalabel.serve.add_pages import add_pages
from megalabel.serve.add_predictions import add_predictions
from megalabel.serve.add_status import add_status
from megalabel.serve.engine import Engine
from megalabel.serve.gate import Gate
from megalabel.serve.invalid import from_validation
from megalabel.serve.json_bytes import json_bytes
from megalabel.serve.json_route import JsonRoute
from megalabel.serve.openapi import make_openapi
from megalabel.serve.problem import Problem
from megalabel.serve.settings import Settings

if TYPE_CHECKING:
    from megalabel.model import Model

__all__ = ["create_app"]


def create_app(model: Model, settings: Settings | None = None) -> FastAPI:
    """Return a FastAPI app that serves a model; ``app.state.engine`` is what works with the model.

    The app owns the model until its lifespan is over: labels change through it alone.
    """
    engine = Engine(model, settings or Settings())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.close()

    app = FastAPI(
        title="megalabel",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # looked up for every request otherwise
    )
    app.state.engine = engine
    app.router.route_class = JsonRoute
    add_predictions(app, engine)
    add_labels(app, engine)
    add_status(app, engine)
    add_pages(app)
    app.add_middleware(Gate, engine=engine)
    _add_openapi(app, engine)
    _add_handlers(app)
    return app


def _add_openapi(app: FastAPI, engine: Engine) -> None:
    document = make_openapi(app, engine)
    content = json_bytes(document)
    app.openapi = lambda: document  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(content, media_type="application/json")


def _add_handlers(app: FastAPI) -> None:
    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        route = request.scope.get("route")
        return from_validation(error.errors(), route.fields if isinstance(route, JsonRoute) else []).response()

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, Problem):
            return error.response()
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allowed = ", ".join(sorted(_methods(app, request)))
            return Problem(405, f"this address takes {allowed}", headers={"Allow": allowed}).response()
        if error.status_code == 404:
            return Problem(404, "there is nothing at this address; see /docs").response()
        return Problem(error.status_code, str(error.detail), headers=error.headers).response()

    async def mistaken(_: Request, error: Exception) -> Response:
        return Problem(422, str(error)).response()

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(MegalabelError, mistaken)


def _methods(app: FastAPI, request: Request) -> set[str]:
    """Return all methods the address of a request takes."""
    return {
        method
        for route in app.routes
        if route.matches(dict(request.scope))[0] != Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
