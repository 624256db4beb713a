"""Counters, histograms and gauges for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server, in a registry of their own: two servers in one process do not share counts.

    >>> metrics = Metrics()
    >>> metrics.count_batch(texts=3, seconds=0.02)
    >>> metrics.value("megalabel_texts_total"), metrics.value("megalabel_batch_texts_bucket", le="4.0")
    (3.0, 1.0)
    >>> metrics.add_gauge("megalabel_labels", "Labels in the model.", lambda: 60)
    >>> "megalabel_labels 60.0" in metrics.render().decode()
    True
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "megalabel_requests", "Requests, by route and status.", ["method", "route", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "megalabel_request_seconds", "Time from request headers to the end of the response.", ["route"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._texts = Counter("megalabel_texts", "Texts predicted.", registry=registry)
        self._batch_texts = Histogram(
            "megalabel_batch_texts", "Texts in one call of the model.", buckets=_TEXTS, registry=registry
        )
        self._batch_seconds = Histogram(
            "megalabel_batch_seconds", "Time of one call of the model.", buckets=_SECONDS, registry=registry
        )
        self._saves = Counter(
            "megalabel_saves",
            "Attempts to save changed labels: records of a change, and whole models.",
            ["done"],
            registry=registry,
        )
        for done in ("yes", "no"):
            self._saves.labels(done)  # reported as 0 from the start

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, status).inc()
        self._request_seconds.labels(route).observe(seconds)

    def count_batch(self, texts: int, seconds: float) -> None:
        """Count a call of the model."""
        self._texts.inc(texts)
        self._batch_texts.observe(texts)
        self._batch_seconds.observe(seconds)

    def count_save(self, *, done: bool) -> None:
        """Count an attempt to save."""
        self._saves.labels("yes" if done else "no").inc()

    def add_gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a value that is read whenever metrics are requested."""
        Gauge(name, description, registry=self.registry).set_function(read)

    def value(self, name: str, **labels: str) -> float | None:
        """Return one sample, or None if it does not exist yet."""
        return self.registry.get_sample_value(name, labels)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format, version 0.0.4."""
        return generate_latest(_WithoutCreated(self.registry))


class _WithoutCreated(Collector):
    """Drops the ``_created`` series, which double the output and which the library can only turn off globally."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self.registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
