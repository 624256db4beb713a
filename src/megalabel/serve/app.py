"""The server as an ASGI app, and its OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import Match

from megalabel._version import __version__
from megalabel.errors import EngineError, MegalabelError
from megalabel.serve.annif import add_annif_routes
from megalabel.serve.engine import Engine
from megalabel.serve.middleware import RequestGuard
from megalabel.serve.responses import Problem, json_bytes
from megalabel.serve.routes import add_routes
from megalabel.serve.settings import Settings
from megalabel.serve.validation import UID_CHARACTERS, JsonRoute, validation_problem

if TYPE_CHECKING:
    from megalabel.model import Model

__all__ = ["create_app"]

_DESCRIPTION = """Predicts the right handful out of thousands to millions of labels for a text.

Errors are `{"error": {"code", "message", "where"}}`."""
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def create_app(model: Model, settings: Settings | None = None) -> FastAPI:
    """Return a FastAPI app that serves a model; ``app.state.engine`` holds the model and its queue.

    The app owns the model until its lifespan ends: change labels only through the app.
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
    add_routes(app, engine)
    if engine.settings.annif is not None:
        add_annif_routes(app, engine)
    app.add_middleware(RequestGuard, engine=engine)
    _add_openapi(app, engine)
    _add_exception_handlers(app)
    return app


def _add_exception_handlers(app: FastAPI) -> None:
    async def on_validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        route = request.scope.get("route")
        body_keys = route.body_keys if isinstance(route, JsonRoute) else []
        return validation_problem(error.errors(), body_keys).response()

    async def on_http_error(request: Request, error: Exception) -> Response:
        if isinstance(error, Problem):
            return error.response()
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allowed = ", ".join(sorted(_allowed_methods(app, request)))
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={"Allow": allowed})
            return Problem(405, f"allowed methods: {allowed}", headers={"Allow": allowed}).response()
        if error.status_code == 404:
            return Problem(404, "nothing exists at this path; see /docs").response()
        return Problem(error.status_code, str(error.detail), headers=error.headers).response()

    async def on_megalabel_error(_: Request, error: Exception) -> Response:
        if isinstance(error, EngineError):
            return Problem(503, str(error), code="unavailable", headers={"Retry-After": "5"}).response()
        return Problem(422, str(error)).response()

    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(MegalabelError, on_megalabel_error)


def _allowed_methods(app: FastAPI, request: Request) -> set[str]:
    """Return all methods that the path of a request accepts."""
    methods = {
        method
        for route in app.routes
        if route.matches(dict(request.scope))[0] != Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    return methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())


def _add_openapi(app: FastAPI, engine: Engine) -> None:
    document = _openapi_document(app, engine)
    content = json_bytes(document)
    app.openapi = lambda: document  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(content, media_type="application/json")


def _openapi_document(app: FastAPI, engine: Engine) -> dict[str, Any]:
    document = get_openapi(title="megalabel", version=__version__, description=_DESCRIPTION, routes=app.routes)
    _add_limits(document["components"]["schemas"], engine)
    if engine.settings.api_key is not None:
        document["components"]["securitySchemes"] = _SECURITY_SCHEMES
        for path, item in document["paths"].items():
            for operation in item.values():
                operation["security"] = [] if path == "/health" else [{name: []} for name in _SECURITY_SCHEMES]
    return document


def _add_limits(schemas: dict[str, Any], engine: Engine) -> None:
    """Add the limits of this server, and the heads of its model, to the schemas of request bodies."""
    settings = engine.settings
    text_limit = {"maxLength": settings.text_characters}
    not_blank = {"pattern": r"\S"}
    predict, explain, add = (schemas[name]["properties"] for name in ("Predict", "Explain", "AddLabels"))
    for body in (predict, add, schemas["RemoveLabels"]["properties"]):
        for name in ("texts", "uids"):
            if name in body:
                array = body[name].get("anyOf", [body[name]])[0]
                array["maxItems"] = settings.texts
                array["items"] |= {"maxLength": UID_CHARACTERS} if body is add and name == "uids" else text_limit
    add["texts"]["items"] |= not_blank
    add["uids"]["anyOf"][0]["items"] |= not_blank
    add["uids"]["anyOf"][0]["uniqueItems"] = True
    schemas["RemoveLabels"]["properties"]["uids"]["uniqueItems"] = True
    schemas["RenameLabel"]["properties"]["text"] |= text_limit | not_blank
    explain["text"] |= text_limit
    for k in (predict["k"]["anyOf"][0], explain["k"]):
        k["maximum"] = settings.k
    predict["heads"]["enum"] = engine.heads
    if engine.model.fusion is None:
        predict["tail"] = {**predict["tail"], "anyOf": [{"type": "null"}]}
