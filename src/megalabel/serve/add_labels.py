"""Addresses that list and change labels."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response

from megalabel.serve.bodies import Added, AddLabels, LabelList, NamedLabel, Removed, RemoveLabels, RenameLabel
from megalabel.serve.engine import Engine
from megalabel.serve.failures import NOT_JSON, UNKNOWN, failures
from megalabel.serve.invalid import check_labels, check_text, check_uids
from megalabel.serve.json_response import JsonResponse
from megalabel.serve.wait_for import wait_for

__all__ = ["add_labels"]

_MOST = (1 << 31) - 1
Uid = Annotated[str, Path(description="The name of a label.", examples=["added-4236"], min_length=1, max_length=1_000)]
Find = Annotated[str | None, Query(description="Only labels with this in text or uid, in any case.", max_length=1_000)]
Offset = Annotated[int, Query(description="Labels to pass over.", ge=0, le=_MOST)]
Limit = Annotated[int, Query(description="Labels to return at most.", ge=1, le=1_000)]


def add_labels(app: FastAPI, engine: Engine) -> None:
    """Add /labels and what is under it."""
    settings = engine.settings
    one = "/labels/{uid:path}"

    async def answered(request: Request, answer: asyncio.Future[dict[str, Any]], status: int = 200) -> Response:
        return JsonResponse(await wait_for(answer, request, settings.timeout), status)

    @app.get("/labels", response_model=LabelList, responses=failures(), summary="List and search labels")
    async def labels(request: Request, find: Find = None, offset: Offset = 0, limit: Limit = 50) -> Response:
        """Return labels that can be found, in the order of their ids."""
        return await answered(request, engine.labels(find, offset, limit))

    @app.post("/labels", response_model=Added, status_code=201, responses=failures(NOT_JSON), summary="Add labels")
    async def add(body: AddLabels, request: Request) -> Response:
        """Add labels by their texts alone; the next request finds them."""
        check_labels(body.texts, body.uids, settings)
        return await answered(request, engine.add(body.texts, body.uids), 201)

    @app.delete("/labels", response_model=Removed, responses=failures(NOT_JSON, UNKNOWN), summary="Remove labels")
    async def remove(body: RemoveLabels, request: Request) -> Response:
        """Remove labels, all of them or, where one is unknown, none; their uids are not given again."""
        check_uids(body.uids, settings)
        return await answered(request, engine.remove(body.uids))

    @app.delete(one, response_model=Removed, responses=failures(UNKNOWN), summary="Remove a label")
    async def remove_one(uid: Uid, request: Request) -> Response:
        """Remove one label."""
        return await answered(request, engine.remove([uid], "uid"))

    @app.patch(one, response_model=NamedLabel, responses=failures(NOT_JSON, UNKNOWN), summary="Rename a label")
    async def rename(uid: Uid, body: RenameLabel, request: Request) -> Response:
        """Give a label another text; what was learnt from its points stays."""
        check_text(body.text, settings)
        return await answered(request, engine.rename(uid, body.text))
