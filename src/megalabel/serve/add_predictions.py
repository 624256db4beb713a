"""Addresses that ask what labels fit a text."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from megalabel.model.explain import Explanation
from megalabel.serve.batcher import Job
from megalabel.serve.bodies import Explain, Predict, Predictions
from megalabel.serve.engine import Engine
from megalabel.serve.failures import NOT_JSON, UNKNOWN, failures
from megalabel.serve.invalid import check_explain, check_predict
from megalabel.serve.json_response import JsonResponse
from megalabel.serve.rows_response import RowsResponse
from megalabel.serve.wait_for import wait_for

__all__ = ["add_predictions"]


def add_predictions(app: FastAPI, engine: Engine) -> None:
    """Add /predict and /explain."""
    settings = engine.settings

    @app.post("/predict", response_model=Predictions, responses=failures(NOT_JSON), summary="Find labels for texts")
    async def predict(body: Predict, request: Request) -> Response:
        """Return the best labels of each text.

        Texts of requests that wait at the same time are answered together.
        """
        check_predict(body, settings, engine.heads, engine.model.fusion is not None)
        job = Job(body.texts, body.k, body.heads, body.tail, body.details, body.min_score)
        rows = await wait_for(engine.predict(job), request, settings.timeout)
        return RowsResponse(rows)

    @app.post("/explain", response_model=Explanation, responses=failures(NOT_JSON, UNKNOWN), summary="Explain a label")
    async def explain(body: Explain, request: Request) -> Response:
        """Say why a label fits a text: what each head says, the nearest training texts, related labels."""
        check_explain(body, settings)
        answer = engine.explain(body.text, body.label, body.k)
        return JsonResponse(await wait_for(answer, request, settings.timeout))
