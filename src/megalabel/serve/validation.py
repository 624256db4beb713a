"""Reads and validates requests; whatever is wrong becomes a Problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from megalabel.errors import nearest
from megalabel.serve.responses import Problem
from megalabel.serve.schemas import Explain, Predict
from megalabel.serve.settings import Settings

__all__ = [
    "UID_CHARACTERS",
    "JsonRoute",
    "check_explain",
    "check_labels",
    "check_predict",
    "check_text",
    "check_uids",
    "validation_problem",
]

UID_CHARACTERS = 1_000
_MAX_KEYS = 100  # in the body; each unknown key would be an error of its own
_SHOWN_CHARACTERS = 60  # of the request, repeated in an error message


class _JsonRequest(Request):
    """Parses JSON strictly: UTF-8, no NaN, no nesting deep enough to exhaust the stack."""

    async def json(self) -> Any:
        document = orjson.loads(await self.body())
        if isinstance(document, dict) and len(document) > _MAX_KEYS:
            raise Problem(422, f"the body has {len(document):,} keys; see /docs for the valid ones")
        return document


class JsonRoute(APIRoute):
    """A route that accepts a body only with the JSON content type.

    This keeps pages of other sites out: their forms can send text, but not the JSON content type.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        whole_path = self.path_regex.pattern.removesuffix("$") + r"\Z"  # $ also matches before a line break at the end
        self.path_regex = re.compile(whole_path)

    @property
    def body_keys(self) -> list[str]:
        """The valid keys of the body."""
        body = None if self.body_field is None else self.body_field.field_info.annotation
        return list(body.model_fields) if isinstance(body, type) and issubclass(body, BaseModel) else []

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        inner_handler = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handler(request: Request) -> Response:
            json_request = _JsonRequest(request.scope, request.receive)
            if takes_body and await json_request.body():
                content_type = json_request.headers.get("content-type", "").partition(";")[0].strip().lower()
                if content_type != "application/json":
                    raise Problem(415, "the body must be JSON; send Content-Type: application/json")
            return await inner_handler(json_request)

        return handler


def validation_problem(errors: Sequence[Mapping[str, Any]], body_keys: Sequence[str] = ()) -> Problem:
    """Return the first of the errors that FastAPI detected; ``body_keys`` are the valid keys of the body.

    >>> validation_problem([{"type": "missing", "loc": ("body", "texts"), "msg": "Field required"}]).message
    'texts is missing'
    >>> validation_problem([{"type": "string_type", "loc": ("body", "texts", 3), "msg": "…"}]).where
    'texts[3]'
    """
    error = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    kind, location = error["type"], tuple(error["loc"])
    where = _path(location[1:])
    if kind == "json_invalid":
        reason = error.get("ctx", {}).get("error", "")
        return Problem(400, f"the body is not valid JSON: {reason}, at character {location[-1]}")
    if len(location) < 2:
        what = "the body is empty" if kind == "missing" else "the body is not a JSON object"
        return Problem(422, f'{what}; send one such as {{"texts": ["some text"]}}')
    if kind == "missing":
        return Problem(422, f"{where} is missing", where=where)
    if kind == "extra_forbidden":
        key = _shorten(str(location[-1]))
        return Problem(422, f"unknown key {key!r}; {nearest(key, body_keys)}", where=where)
    message = str(error.get("msg", "invalid"))
    return Problem(422, f"{where}: {message[:1].lower()}{message[1:]}", where=where)


def check_predict(body: Predict, settings: Settings, heads: Sequence[str], fused: bool) -> None:
    """Raise a Problem if the model cannot answer the request, or the request exceeds a limit."""
    _check_texts(body.texts, settings)
    if body.k is not None:
        _check_k(body.k, settings)
    if body.heads not in heads:
        name = _shorten(body.heads)
        raise Problem(422, f"this model has no head {name!r}; {nearest(name, heads)}", where="heads")
    if body.tail is not None and not fused:
        raise Problem(422, "tail needs a fused model, and this one is not fused; omit it", where="tail")


def check_explain(body: Explain, settings: Settings) -> None:
    """Raise a Problem if the text or k exceeds its limit."""
    _check_length(body.text, "text", settings)
    _check_k(body.k, settings)


def check_text(text: str, settings: Settings) -> None:
    """Raise a Problem if the text of a label is blank or too long."""
    _check_length(text, "text", settings)
    if not text.strip():
        raise Problem(422, "text is blank; a label needs a text", where="text")


def check_uids(uids: Sequence[str], settings: Settings) -> None:
    """Raise a Problem if there are too many uids, or one is too long."""
    _check_texts(uids, settings, "uids")


def check_labels(texts: Sequence[str], uids: Sequence[str] | None, settings: Settings) -> None:
    """Raise a Problem if label texts or uids are blank or exceed a limit."""
    _check_texts(texts, settings)
    _check_not_blank(texts, "texts")
    if uids is None:
        return
    if len(uids) != len(texts):
        raise Problem(422, f"{len(uids):,} uids for {len(texts):,} labels; send one uid per text", where="uids")
    _check_not_blank(uids, "uids")
    for index, uid in enumerate(uids):
        if len(uid) > UID_CHARACTERS:
            raise Problem(422, f"a uid can have at most {UID_CHARACTERS:,} characters", where=f"uids[{index}]")


def _check_not_blank(values: Sequence[str], name: str) -> None:
    for index, value in enumerate(values):
        if not value.strip():
            where = f"{name}[{index}]"
            raise Problem(422, f"{where} is blank; a label needs a text and a uid", where=where)


def _check_texts(texts: Sequence[str], settings: Settings, name: str = "texts") -> None:
    if len(texts) > settings.texts:
        raise Problem(
            422,
            f"{len(texts):,} {name}, but at most {settings.texts:,} are accepted per request; "
            "send several requests, or start the server with --max-texts",
            where=name,
        )
    for index, text in enumerate(texts):
        _check_length(text, f"{name}[{index}]", settings)


def _check_length(text: str, where: str, settings: Settings) -> None:
    if len(text) > settings.text_characters:
        raise Problem(
            422,
            f"{where} has {len(text):,} characters, but at most {settings.text_characters:,} are accepted; "
            "shorten it, or start the server with --max-characters",
            where=where,
        )


def _check_k(k: int, settings: Settings) -> None:
    if k > settings.k:
        excess = f"k is {k if k < 10**9 else float(k):,}, but at most {settings.k:,} labels are returned"
        raise Problem(422, f"{excess}; lower k, or start the server with --max-k", where="k")


def _path(location: Sequence[Any]) -> str | None:
    """Return a path such as ``texts[3]``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_shorten(str(part))}" for part in location]
    return "".join(parts).lstrip(".") or None


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
