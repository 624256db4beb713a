"""The routes of Annif's REST API: a model as a project, for Annif's ``http`` backend and other clients.

They follow version 1 of the API of Annif. Errors are ``application/problem+json`` as there, with the ``error`` of the
other routes of this server beside it. What a model cannot do is left out (``detect-language``) or refused (``learn``).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from megalabel._version import __version__
from megalabel.documents import parse_number, parse_whole
from megalabel.serve.batcher import Job
from megalabel.serve.engine import Engine
from megalabel.serve.responses import JsonResponse, Problem, json_bytes
from megalabel.serve.routes import failures, wait_for
from megalabel.serve.settings import Settings
from megalabel.serve.validation import validation_problem

__all__ = ["add_annif_routes"]

PREFIX = "/v1"
_DOCUMENTS = 32  # in a batch
_LIMIT = 10  # subjects of a text by default
_BYTES = 12  # of a character at most, in a form: four bytes of UTF-8, each as %XX
_METADATA_BYTES = 1 << 16
_FIELDS = 1_000
_FORM = "application/x-www-form-urlencoded"


class Document(BaseModel):
    """A text of a batch; its metadata is ignored."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    text: str
    document_id: str | None = None
    metadata: dict[str, str] = Field(default={})


class Documents(BaseModel):
    """A batch of texts."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    documents: list[Document] = Field(max_length=_DOCUMENTS)


class Suggestion(BaseModel):
    """A subject suggested for a text."""

    uri: str = Field(description="The uid of the label.")
    label: str
    notation: str | None
    score: float = Field(ge=0, le=1)


class Suggestions(BaseModel):
    """The subjects of a text, best first."""

    results: list[Suggestion]


class DocumentSuggestions(Suggestions):
    """The subjects of a text of a batch."""

    document_id: str | None


class AnnifProblem(BaseModel):
    """An error in the form of RFC 9457."""

    type: str = Field(examples=["about:blank"])
    title: str
    status: int
    detail: str


def add_annif_routes(app: FastAPI, engine: Engine) -> None:
    """Add the routes to the app; ``engine.settings.annif`` is the id of the project."""
    settings, project = engine.settings, engine.settings.annif
    assert project is not None
    path = f"{PREFIX}/projects/{{project_id}}"
    responses = _problems()

    def check_project(name: str) -> None:
        if name != project:
            raise _AnnifError(404, f"project {name[:60]!r} not found; this server has {project!r}", "Project not found")

    @app.get(f"{PREFIX}/", responses=responses, summary="Annif: describe the API")
    async def info() -> Response:
        """Return the name and version of the server."""
        return JsonResponse({"title": "megalabel, Annif REST API", "version": __version__})

    @app.get(f"{PREFIX}/vocabs", responses=responses, summary="Annif: list vocabularies")
    async def vocabularies() -> Response:
        """Return the labels of the model as the only vocabulary."""
        return JsonResponse({"vocabs": [_vocabulary(engine)]})

    @app.get(f"{PREFIX}/projects", responses=responses, summary="Annif: list projects")
    async def projects() -> Response:
        """Return the model as the only project."""
        return JsonResponse({"projects": [_project(engine)]})

    @app.get(path, responses=responses, summary="Annif: describe the project")
    @_answers_problems
    async def project_info(project_id: str) -> Response:
        """Return the project."""
        check_project(project_id)
        return JsonResponse(_project(engine))

    @app.post(
        f"{path}/suggest",
        response_model=Suggestions,
        responses=responses,
        openapi_extra={"requestBody": _form_schema(settings)},
        summary="Annif: suggest subjects",
    )
    @_answers_problems
    async def suggest(project_id: str, request: Request) -> Response:
        """Return subjects for the ``text`` of a form; ``metadata_`` fields are ignored."""
        check_project(project_id)
        fields = await _read_form(request, settings)
        if "text" not in fields:
            raise _AnnifError(400, "text is missing")
        (row,) = await _suggest([fields["text"]], fields, engine, request)
        return JsonResponse({"results": row})

    @app.post(
        f"{path}/suggest-batch",
        response_model=list[DocumentSuggestions],
        responses=responses,
        openapi_extra=_batch_schema(settings),
        summary="Annif: suggest subjects of several texts",
    )
    @_answers_problems
    async def suggest_batch(project_id: str, request: Request) -> Response:
        """Return subjects for each of up to 32 documents, in their order."""
        check_project(project_id)
        documents = await _read_documents(request)
        rows = await _suggest([document.text for document in documents], request.query_params, engine, request)
        pairs = zip(rows, documents, strict=True)
        return JsonResponse([{"results": row, "document_id": document.document_id} for row, document in pairs])

    @app.post(f"{path}/learn", responses=responses, summary="Annif: refuse to learn")
    @_answers_problems
    async def learn(project_id: str) -> Response:
        """Answer 403: a model does not learn while it is served."""
        check_project(project_id)
        raise _AnnifError(403, f"project {project!r} does not learn through this API", "Learning not allowed")


class _AnnifError(Problem):
    """A Problem whose answer has the title that Annif gives it."""

    def __init__(self, status: int, message: str, title: str | None = None) -> None:
        super().__init__(status, message)
        self.title = title


def _answers_problems(handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """Let a route answer its problems in the form of Annif."""

    @wraps(handler)
    async def wrapped(*arguments: Any, **values: Any) -> Response:
        try:
            return await handler(*arguments, **values)
        except Problem as problem:
            status = problem.status_code
            title = getattr(problem, "title", None) or HTTPStatus(status).phrase
            document = {"type": "about:blank", "title": title, "status": status, "detail": problem.message}
            content = json_bytes(document | orjson.loads(problem.body()))
            return Response(content, status, dict(problem.headers or {}), "application/problem+json")

    return wrapped


async def _suggest(
    texts: Sequence[str], values: Mapping[str, str], engine: Engine, request: Request
) -> list[list[dict[str, Any]]]:
    """Return the suggestions of each text, given limit, threshold and language."""
    settings = engine.settings
    limit, threshold = _options(values, settings)
    for place, text in enumerate(texts):
        if len(text) > settings.text_characters:
            where = "text" if len(texts) == 1 else f"documents[{place}].text"
            what = f"{where} has {len(text):,} characters, but at most {settings.text_characters:,} are accepted"
            raise _AnnifError(413, f"{what}; shorten it, or start the server with --max-characters")
    if limit == 0:
        return [[] for _ in texts]
    job = Job(texts, limit)
    rows = await wait_for(engine.predict(job), request, settings.timeout)
    return [_results(orjson.loads(row), engine, threshold) for row in rows]


def _results(row: list[dict[str, Any]], engine: Engine, threshold: float) -> list[dict[str, Any]]:
    labels, fused = engine.model.labels, engine.model.fusion is not None
    results = []
    for found in row:
        score = 0.0 if found["score"] is None else _unit_score(found["score"], fused)
        if score <= 0.0 or score < threshold:
            continue
        label = found["id"]
        notation = labels.concept(label).notation
        results.append({"uri": found["uid"], "label": labels.name(label), "notation": notation, "score": score})
    return results


def _unit_score(score: float, fused: bool) -> float:
    """Return a score in [0, 1]: a probability as it is, another score through 1 / (1 + exp(-score)).

    >>> _unit_score(0.25, fused=True), _unit_score(0.0, fused=False), _unit_score(-2000.0, fused=False)
    (0.25, 0.5, 0.0)
    """
    if fused:
        return min(max(score, 0.0), 1.0)
    return 1.0 / (1.0 + math.exp(-score)) if score > -700.0 else 0.0


def _options(values: Mapping[str, str], settings: Settings) -> tuple[int, float]:
    """Return limit and threshold; a wrong one, or another language, is status 400."""
    try:
        limit = min(parse_whole(values.get("limit", str(_LIMIT))), settings.k)
    except ValueError:
        limit = -1
    if limit < 0:
        raise _AnnifError(400, f"limit must be a whole number from 0, not {values['limit'][:40]!r}")
    try:
        threshold = parse_number(values.get("threshold", "0"))
    except ValueError:
        threshold = math.nan
    if not 0.0 <= threshold <= 1.0:
        raise _AnnifError(400, f"threshold must be a number from 0 to 1, not {values['threshold'][:40]!r}")
    language = values.get("language") or settings.language
    if language != settings.language:
        what = f"language {language[:40]!r} is not supported by the vocabulary, which is in {settings.language!r}"
        raise _AnnifError(400, what)
    return limit, threshold


async def _read_form(request: Request, settings: Settings) -> dict[str, str]:
    _check_type(request, _FORM)
    limit = _BYTES * settings.text_characters + _METADATA_BYTES
    body = await request.body()
    if len(body) > limit:
        raise _AnnifError(413, f"the form exceeds {limit:,} bytes; shorten the text, or see --max-characters")
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS))
    except (UnicodeDecodeError, ValueError):
        raise _AnnifError(400, f"the form cannot be read: it is not UTF-8, or has over {_FIELDS:,} fields") from None


async def _read_documents(request: Request) -> list[Document]:
    _check_type(request, "application/json")
    try:
        return Documents.model_validate(orjson.loads(await request.body())).documents
    except orjson.JSONDecodeError as error:
        raise _AnnifError(400, f"the body is not valid JSON: {error.msg}, at character {error.pos}") from None
    except ValidationError as error:
        errors = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        problem = validation_problem(errors, list(Documents.model_fields))
        raise _AnnifError(400, problem.message.replace('"texts": ["some text"]', '"documents": [...]')) from None


def _check_type(request: Request, expected: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != expected:
        raise _AnnifError(415, f"send Content-Type: {expected}")


def _vocabulary(engine: Engine) -> dict[str, Any]:
    settings = engine.settings
    size = engine.model.state.alive
    return {"vocab_id": settings.annif, "languages": [settings.language], "size": size, "loaded": True}


def _project(engine: Engine) -> dict[str, Any]:
    settings = engine.settings
    return {
        "project_id": settings.annif,
        "name": f"{settings.annif} ({engine.model.recipe.name})",
        "language": settings.language,
        "backend": {"backend_id": "megalabel"},
        "vocab": _vocabulary(engine),
        "vocab_language": settings.language,
        "is_trained": True,
        "modification_time": None,
    }


def _problems() -> dict[int | str, dict[str, Any]]:
    """Return the errors of a route, for the OpenAPI document."""
    more = {404: "No such project.", 415: "The content type is another."}
    found = failures(more)
    for response in found.values():
        response["content"] = {"application/problem+json": {"schema": AnnifProblem.model_json_schema()}}
    return found


def _form_schema(settings: Settings) -> dict[str, Any]:
    properties = {"text": {"type": "string", "maxLength": settings.text_characters}}
    properties |= {schema["name"]: schema["schema"] for schema in _parameters(settings)}
    schema = {"type": "object", "required": ["text"], "properties": properties}
    return {"required": True, "content": {_FORM: {"schema": schema}}}


def _batch_schema(settings: Settings) -> dict[str, Any]:
    schema = Documents.model_json_schema(ref_template="#/components/schemas/{model}")
    schema["properties"]["documents"]["items"] = Document.model_json_schema()
    schema.pop("$defs")
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body, "parameters": _parameters(settings)}


def _parameters(settings: Settings) -> list[dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = {
        "limit": {"type": "integer", "minimum": 0, "default": _LIMIT},
        "threshold": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
        "language": {"type": "string", "enum": [settings.language]},
    }
    return [{"in": "query", "name": name, "required": False, "schema": schema} for name, schema in schemas.items()]
