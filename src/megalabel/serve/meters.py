"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

__all__ = ["Histogram", "Meters"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """Counts of values up to each bound.

    >>> sizes = Histogram((1, 10))
    >>> for value in (1, 5, 50):
    ...     sizes.add(value)
    >>> sizes.lines("size", 'of="batch"')
    ['size_bucket{of="batch",le="1"} 1', 'size_bucket{of="batch",le="10"} 2', 'size_bucket{of="batch",le="+Inf"} 3',
     'size_sum{of="batch"} 56', 'size_count{of="batch"} 3']
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Return the lines of the text format."""
        comma, own = ("," if labels else ""), f"{{{labels}}}" if labels else ""
        bounds = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        sums = list(accumulate(self.counts))
        buckets = [f'{name}_bucket{{{labels}{comma}le="{le}"}} {n}' for le, n in zip(bounds, sums, strict=True)]
        return [*buckets, f"{name}_sum{own} {self.total:g}", f"{name}_count{own} {sums[-1]}"]


class Meters:
    """Counters of one server; only its event loop writes to them."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.texts = 0
        self.batches = Histogram(_TEXTS)
        self.batch_seconds = Histogram(_SECONDS)
        self.saves: Counter[str] = Counter()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[method, route, status] += 1
        if route not in self.seconds:
            self.seconds[route] = Histogram(_SECONDS)
        self.seconds[route].add(seconds)

    def batch(self, texts: int, seconds: float) -> None:
        """Count a call of the model."""
        self.texts += texts
        self.batches.add(texts)
        self.batch_seconds.add(seconds)

    def render(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Return all of it in the text format, with gauges by name: what each is, and its value."""
        out: list[str] = []

        def family(name: str, kind: str, about: str, lines: Sequence[str]) -> None:
            out.extend([f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines])

        family("megalabel_requests_total", "counter", "Requests answered, by route and status.", [
            f'megalabel_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
            for (method, route, status), count in sorted(self.requests.items())
        ])  # fmt: skip
        name = "megalabel_request_seconds"
        family(name, "histogram", "Time from the head of a request to the end of its answer.", [
            line for route, one in sorted(self.seconds.items()) for line in one.lines(name, f'route="{route}"')
        ])  # fmt: skip
        family("megalabel_texts_total", "counter", "Texts predicted.", [f"megalabel_texts_total {self.texts}"])
        name = "megalabel_batch_texts"
        family(name, "histogram", "Texts in one call of the model.", self.batches.lines(name))
        name = "megalabel_batch_seconds"
        family(name, "histogram", "Time of one call of the model.", self.batch_seconds.lines(name))
        family("megalabel_saves_total", "counter", "Times changed labels were saved, or could not be.", [
            f'megalabel_saves_total{{done="{done}"}} {self.saves[done]}' for done in ("yes", "no")
        ])  # fmt: skip
        for name, (about, value) in gauges.items():
            family(name, "gauge", about, [f"{name} {value:.12g}"])
        return "\n".join(out) + "\n"
