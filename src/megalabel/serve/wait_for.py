"""Waiting for the model."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from megalabel.serve.problem import Problem

__all__ = ["wait_for"]

Result = TypeVar("Result")


async def wait_for(answer: asyncio.Future[Result], request: Request, seconds: float) -> Result:
    """Return the answer; give it up where it takes too long (a Problem) or the client has left (ClientDisconnect)."""
    gone = asyncio.ensure_future(_left(request))
    both: set[asyncio.Future[Any]] = {answer, gone}
    try:
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if gone.done():
            raise ClientDisconnect
        raise Problem(504, f"no answer within {seconds:g} s; send fewer texts at once, or try again later")
    finally:
        answer.cancel()
        gone.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # a body that the route does not take
