"""The OpenAPI document, with the limits this server has."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from megalabel._version import __version__
from megalabel.serve.engine import Engine

__all__ = ["make_openapi"]

_ABOUT = """Finds the right handful out of thousands to millions of labels for a text.

Errors are `{"error": {"code", "message", "where"}}`."""
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def make_openapi(app: FastAPI, engine: Engine) -> dict[str, Any]:
    """Return the document for the routes of an app."""
    document = get_openapi(title="megalabel", version=__version__, description=_ABOUT, routes=app.routes)
    document["paths"] = {path.replace(":path}", "}"): item for path, item in document["paths"].items()}
    _put_limits(document["components"]["schemas"], engine)
    if engine.settings.api_key is not None:
        document["components"]["securitySchemes"] = _KEYS
        for path, item in document["paths"].items():
            for operation in item.values():
                operation["security"] = [] if path == "/health" else [{name: []} for name in _KEYS]
    return document


def _put_limits(schemas: dict[str, Any], engine: Engine) -> None:
    settings = engine.settings
    text = {"maxLength": settings.text_characters}
    blank = {"pattern": r"\S"}
    predict, explain, add = (schemas[name]["properties"] for name in ("Predict", "Explain", "AddLabels"))
    for body in (predict, add, schemas["RemoveLabels"]["properties"]):
        for name in ("texts", "uids"):
            if name in body:
                list_of = body[name].get("anyOf", [body[name]])[0]
                list_of["maxItems"] = settings.texts
                list_of["items"] |= text if name == "texts" else {"maxLength": 1_000}
    add["texts"]["items"] |= blank
    add["uids"]["anyOf"][0]["items"] |= blank
    add["uids"]["anyOf"][0]["uniqueItems"] = True
    schemas["RemoveLabels"]["properties"]["uids"]["uniqueItems"] = True
    schemas["RenameLabel"]["properties"]["text"] |= text | blank
    explain["text"] |= text
    for body in (predict, explain):
        body["k"]["maximum"] = settings.k
    predict["heads"]["enum"] = engine.heads
    if engine.model.fusion is None:
        predict["tail"] = {**predict["tail"], "anyOf": [{"type": "null"}]}
