"""The routes: predictions, labels, status, and the files of the pages."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles

from megalabel.model.explain import Explanation
from megalabel.serve.batcher import Job
from megalabel.serve.engine import Engine
from megalabel.serve.responses import JsonResponse, Problem, RowsResponse
from megalabel.serve.schemas import (
    Added,
    AddLabels,
    Explain,
    Failure,
    Health,
    LabelList,
    LabelOrder,
    ModelInfo,
    NamedLabel,
    Predict,
    Predictions,
    Removed,
    RemoveLabels,
    RenameLabel,
)
from megalabel.serve.validation import (
    check_explain,
    check_labels,
    check_predict,
    check_text,
    check_uids,
)

__all__ = ["add_routes", "failures", "wait_for"]

Result = TypeVar("Result")

_MAX_OFFSET = (1 << 31) - 1
Uid = Annotated[
    str,
    PathParameter(description="The uid of a label, percent-encoded.", examples=["added-4236"], min_length=1),
]
Find = Annotated[
    str | None, Query(description="Only labels whose text or uid contains this, ignoring case.", max_length=1_000)
]
Offset = Annotated[int, Query(description="Labels to skip.", ge=0, le=_MAX_OFFSET)]
Limit = Annotated[int, Query(description="Labels to return at most.", ge=1, le=1_000)]
Sort = Annotated[
    LabelOrder, Query(description="`id`, or the labels with the `most` or the `fewest` training points first.")
]

_FAILURES = {
    400: "The request or its body cannot be parsed.",
    401: "The API key is missing or wrong.",
    403: "The Host, the Origin or the settings of the server forbid the request.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "The body or a parameter is invalid, or exceeds a limit.",
    429: "The queue is full; Retry-After says when to try again.",
    500: "An error in the server.",
    503: "The server is stopping, or out of memory.",
    504: "No answer in time.",
}
_NOT_JSON = {415: "The content type is not JSON."}
_UNKNOWN_UID = {404: "No label has this uid."}
_NOT_SAVED = {507: "The change cannot be saved, and was not made; Retry-After says when to try again."}
_METRICS = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counters and histograms."}
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def add_routes(app: FastAPI, engine: Engine) -> None:
    """Add all routes to the app."""
    _add_predictions(app, engine)
    _add_labels(app, engine)
    _add_status(app, engine)
    _add_pages(app)


def _add_predictions(app: FastAPI, engine: Engine) -> None:
    settings = engine.settings

    @app.post("/predict", response_model=Predictions, responses=failures(_NOT_JSON), summary="Predict labels")
    async def predict(body: Predict, request: Request) -> Response:
        """Return the labels of each text above the threshold of the model, or with `k` the best.

        Texts of concurrent requests are answered in one batch.
        """
        check_predict(body, settings, engine.heads, engine.model.fusion is not None)
        cut = engine.cut(body)
        job = Job(body.texts, cut.k, body.heads, body.tail, body.details, cut.least)
        rows = await wait_for(engine.predict(job), request, settings.timeout)
        return RowsResponse(rows, None if cut.threshold is None else cut.threshold.brief())

    explain_failures = failures(_NOT_JSON, _UNKNOWN_UID)

    @app.post("/explain", response_model=Explanation, responses=explain_failures, summary="Explain a label")
    async def explain(body: Explain, request: Request) -> Response:
        """Explain why a label fits a text: the score of each head, the nearest training texts, related labels."""
        check_explain(body, settings)
        answer = engine.explain(body.text, body.label, body.k)
        return JsonResponse(await wait_for(answer, request, settings.timeout))


def _add_labels(app: FastAPI, engine: Engine) -> None:
    settings = engine.settings
    register_url_convertor("uid", _UidConvertor())
    label_path = "/labels/{uid:uid}"

    async def respond(request: Request, answer: asyncio.Future[dict[str, Any]], status: int = 200) -> Response:
        return JsonResponse(await wait_for(answer, request, settings.timeout), status)

    @app.get("/labels", response_model=LabelList, responses=failures(), summary="List and search labels")
    async def labels(
        request: Request, find: Find = None, offset: Offset = 0, limit: Limit = 50, sort: Sort = "id"
    ) -> Response:
        """Return labels with their training points, a page at a time."""
        return await respond(request, engine.labels(find, offset, limit, sort))

    added = failures(_NOT_JSON, _NOT_SAVED)

    @app.post("/labels", response_model=Added, status_code=201, responses=added, summary="Add labels")
    async def add(body: AddLabels, request: Request) -> Response:
        """Add labels by their texts alone; the next request can predict them."""
        check_labels(body.texts, body.uids, settings)
        return await respond(request, engine.add(body.texts, body.uids), 201)

    changed = failures(_NOT_JSON, _UNKNOWN_UID, _NOT_SAVED)

    @app.delete("/labels", response_model=Removed, responses=changed, summary="Remove labels")
    async def remove(body: RemoveLabels, request: Request) -> Response:
        """Remove labels: all of them, or none if a uid is unknown. Their uids are never used again."""
        check_uids(body.uids, settings)
        return await respond(request, engine.remove(body.uids))

    removed = failures(_UNKNOWN_UID, _NOT_SAVED)

    @app.delete(label_path, response_model=Removed, responses=removed, summary="Remove a label")
    async def remove_one(uid: Uid, request: Request) -> Response:
        """Remove one label."""
        return await respond(request, engine.remove([uid], "uid"))

    @app.patch(label_path, response_model=NamedLabel, responses=changed, summary="Rename a label")
    async def rename(uid: Uid, body: RenameLabel, request: Request) -> Response:
        """Give a label a new text; what the model learnt from its training points stays."""
        check_text(body.text, settings)
        return await respond(request, engine.rename(uid, body.text))


def _add_status(app: FastAPI, engine: Engine) -> None:
    @app.get("/model", response_model=ModelInfo, responses=failures(), summary="Describe the model")
    async def model() -> Response:
        """Return facts about the model, and the limits of a request."""
        return JsonResponse(engine.info())

    @app.get("/health", response_model=Health, responses=failures(), summary="Check health")
    async def health() -> Response:
        """Return 200 while the server is up, 503 once it is stopping."""
        return JsonResponse({"status": "ok"})

    @app.get("/metrics", response_class=Response, responses=failures() | {200: _METRICS}, summary="Read metrics")
    async def metrics() -> Response:
        """Return metrics in the Prometheus text format."""
        return Response(engine.metrics.render(), media_type=_METRICS_TYPE)


def _add_pages(app: FastAPI) -> None:
    """Add the playground and the API documentation; neither loads anything from another host."""
    package = Path(__file__).parent
    page, docs = _PageFiles(directory=package / "page"), _PageFiles(directory=package / "docs_page")

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    @app.get("/page/{name:path}", include_in_schema=False)
    async def page_file(name: str, request: Request) -> Response:
        return await page.get_response(name, request.scope)

    @app.get("/docs", include_in_schema=False)
    async def documentation(request: Request) -> Response:
        return await docs.get_response("docs.html", request.scope)

    @app.get("/docs/{name:path}", include_in_schema=False)
    async def documentation_file(name: str, request: Request) -> Response:
        return await docs.get_response(name, request.scope)


class _UidConvertor(StringConvertor):
    """Any characters; the ones that Starlette brings accept no line breaks."""

    regex = "(?s:.*)"


class _PageFiles(StaticFiles):
    """Files of a page. Browsers revalidate them by ETag, so an upgrade of the server shows at once."""

    async def get_response(self, path: str, scope: Any) -> Response:
        media_type = _MEDIA_TYPES.get(PurePosixPath(path).suffix)
        if media_type is None:
            raise Problem(404, "file not found")
        # Files are small. Without this, an invalid range would be answered in plain text.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name not in (b"range", b"if-range")]
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        if response.status_code == 200:
            response.headers["content-type"] = media_type  # not what the system's registry says
        return response


def failures(*more: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return the errors of a route, for the OpenAPI document: those of every route, and more."""
    descriptions = dict(_FAILURES)
    for statuses in more:
        descriptions |= statuses
    return {status: {"model": Failure, "description": text} for status, text in sorted(descriptions.items())}


async def wait_for(answer: asyncio.Future[Result], request: Request, seconds: float) -> Result:
    """Return the answer. Cancel it after a timeout (Problem) or if the client disconnects (ClientDisconnect)."""
    disconnected = asyncio.ensure_future(_disconnect(request))
    futures: set[asyncio.Future[Any]] = {answer, disconnected}
    try:
        await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if disconnected.done():
            raise ClientDisconnect
        raise Problem(504, f"no answer within {seconds:g} s; send fewer texts at once, or try again later")
    finally:
        answer.cancel()
        disconnected.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # a body that the route does not read
