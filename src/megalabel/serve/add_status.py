"""Addresses that say how the server is."""

from __future__ import annotations

from fastapi import FastAPI, Response

from megalabel.serve.bodies import Health, ModelInfo
from megalabel.serve.engine import Engine
from megalabel.serve.failures import failures
from megalabel.serve.json_response import JsonResponse

__all__ = ["add_status"]

_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counters and histograms."}


def add_status(app: FastAPI, engine: Engine) -> None:
    """Add /model, /health and /metrics."""

    @app.get("/model", response_model=ModelInfo, responses=failures(), summary="Describe the model")
    async def model() -> Response:
        """Return what is served, and the limits of a request."""
        return JsonResponse(engine.info())

    @app.get("/health", response_model=Health, responses=failures(), summary="Check health")
    async def health() -> Response:
        """Say that the server answers; 503 once it is stopping."""
        return JsonResponse({"status": "ok"})

    @app.get("/metrics", response_class=Response, responses=failures() | {200: _TEXT}, summary="Count and measure")
    async def metrics() -> Response:
        """Return counters in the text format of Prometheus."""
        content = engine.meters.render(engine.gauges())
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")
