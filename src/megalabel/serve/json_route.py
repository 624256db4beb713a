"""How bodies are read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from megalabel.serve.problem import Problem

__all__ = ["JsonRoute"]

_KEYS = 100


class _JsonRequest(Request):
    """Reads JSON strictly: UTF-8, no NaN, no depth that would exhaust the stack."""

    async def json(self) -> Any:
        document = orjson.loads(await self.body())
        if isinstance(document, dict) and len(document) > _KEYS:  # each unknown one would be an error of its own
            raise Problem(422, f"the body has {len(document):,} keys; see /docs for those it may have")
        return document


class JsonRoute(APIRoute):
    """A route whose body, if it has one, is JSON and says so.

    That it must say so keeps pages of other sites out, whose forms can send text but not JSON.
    """

    @property
    def fields(self) -> list[str]:
        """The names that the body may have."""
        body = None if self.body_field is None else self.body_field.field_info.annotation
        return list(body.model_fields) if isinstance(body, type) and issubclass(body, BaseModel) else []

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handler(request: Request) -> Response:
            again = _JsonRequest(request.scope, request.receive)
            if takes_body and await again.body():
                kind = again.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind != "application/json":
                    raise Problem(415, "the body must be JSON; send Content-Type: application/json")
            return await answer(again)

        return handler
