"""The index that suits labels, queries and machine, and what was measured to find out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.errors import DataError, SettingError, nearest
from megalabel.index._lists import PER_LIST, ROUNDS
from megalabel.index.build_index import KINDS, build_index
from megalabel.index.exact import ExactIndex
from megalabel.index.hnsw import HnswIndex
from megalabel.index.ivf import IvfIndex
from megalabel.index.recall import recall

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Choice", "choose_index"]

_QUERIES = 256  # measured with
_K = 10
_LEAST = 8  # effort to begin with
_SHORT = 10.0  # seconds of exact search that nothing need be saved of


@dataclass(frozen=True)
class Choice:
    """An index and what was measured of it; as text, one line."""

    index: ExactIndex | HnswIndex | IvfIndex
    kind: str
    recall: float  # @10, against exact search
    build_seconds: float
    queries_per_second: float  # in batches, k = 10
    exact_per_second: float
    measured_on: str
    why: str

    def __str__(self) -> str:
        effort = {"hnsw": "ef_search", "ivf": "nprobe"}.get(self.kind)
        how = "" if isinstance(self.index, ExactIndex) else f" ({effort} {self.index.effort})"
        beside = "" if self.kind == "exact" else f" (exact {self.exact_per_second:,.0f})"
        return (
            f"{self.kind}{how} over {len(self.index):,} labels: recall@{_K} {self.recall:.3f} on {self.measured_on}, "
            f"built in {self.build_seconds:.1f} s, {self.queries_per_second:,.0f} queries/s{beside}; {self.why}"
        )


def choose_index(
    vectors: Tensor,
    queries: Tensor | None = None,
    kind: str = "auto",
    *,
    searches: int = 100_000,
    at_least: float = 0.95,
    seed: int = 0,
    **settings: Any,
) -> Choice:
    """Build an index and measure it: recall@10 against exact search, seconds to build, queries per second.

    An approximate index looks as far as ``at_least`` asks for: the least effort (nprobe,
    ef_search) among powers of two that reaches this recall, unless the effort is among the
    settings. ``auto`` times exact search on this machine and keeps it where all searches
    expected take 10 s or less, or less than clustering the labels would; else it builds
    inverted lists, measures them, and takes them where they are done in half the time,
    build included. A graph (``hnsw``) takes far longer to build: ask for it by name.

    Args:
        vectors: label vectors [L, d].
        queries: [Q, d] real ones; up to 256 of them are measured with. Without, label
            vectors stand in, which says less.
        kind: exact, hnsw, ivf or auto.
        searches: queries that will be asked, for ``auto``.
        at_least: recall@10 an approximate index must reach, 0 to 1.
        seed: of the index and of the choice of queries.
        settings: of the kind, as :func:`build_index` takes them.

    >>> labels = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    >>> choose_index(labels).kind
    'exact'
    >>> choose_index(labels, kind="ivf", at_least=1.0).recall
    1.0
    """
    if kind not in ("auto", *KINDS):
        raise SettingError(f"there is no index of kind {kind!r}", remedy=nearest(kind, ["auto", *KINDS]))
    if kind == "auto" and settings:
        raise SettingError(f"auto takes no {', '.join(settings)}", remedy="name the kind of index")
    if searches < 1 or not 0 <= at_least <= 1:
        raise SettingError(f"searches must be at least 1 and at_least in 0 to 1, not {searches} and {at_least}")
    if queries is not None and len(queries) == 0:
        raise DataError("there are no queries to measure with", remedy="leave them out, or give some")
    start = time.perf_counter()
    exact = ExactIndex(vectors)
    ready = time.perf_counter() - start
    asked, name = _some(exact.vectors if queries is None else queries, seed), "queries"
    if queries is None:
        name = "label vectors, no queries were given"
    one = _seconds(exact, asked)
    plain = Choice(exact, "exact", 1.0, ready, 1 / one, 1 / one, f"{len(asked)} {name}", "asked for")
    if kind == "exact":
        return plain
    if kind == "auto":
        return _weigh(plain, asked, searches, at_least, seed)
    return _measure(plain, kind, asked, at_least, seed, settings, "asked for")


def _weigh(plain: Choice, asked: Tensor, searches: int, at_least: float, seed: int) -> Choice:
    """Return exact search, or inverted lists where those are done in half the time."""
    labels, one = len(plain.index), 1 / plain.exact_per_second
    whole = searches * one
    if whole <= _SHORT:
        return _because(plain, f"{searches:,} searches take {whole:.1f} s looking at every label")
    nlist = round(4 * math.sqrt(labels))  # each product of a label with a centre costs what one with a query does
    build = one * nlist * (1 + ROUNDS * min(1.0, PER_LIST * nlist / labels))
    if build >= whole:
        return _because(plain, f"clustering takes about {build:.0f} s, {searches:,} exact searches {whole:.0f} s")
    lists = _measure(plain, "ivf", asked, at_least, seed, {}, "")
    total = lists.build_seconds + searches / lists.queries_per_second
    why = f"for {searches:,} searches ivf takes {total:.0f} s with its build, exact {whole:.0f} s"
    return _because(lists if 2 * total < whole else plain, why)


def _measure(
    plain: Choice, kind: str, asked: Tensor, at_least: float, seed: int, settings: dict[str, Any], why: str
) -> Choice:
    """Build an approximate index, set its effort and time it."""
    start = time.perf_counter()
    index = build_index(plain.index.vectors, kind, seed=seed, **settings)
    build = time.perf_counter() - start
    assert not isinstance(index, ExactIndex)
    tuned = "ef_search" not in settings and "nprobe" not in settings
    if tuned:
        index.effort = _LEAST
    found = recall(index, plain.index, asked, _K)
    while tuned and found < at_least and index.effort < index.most_effort:
        index.effort *= 2
        found = recall(index, plain.index, asked, _K)
    if tuned and found < at_least:
        why = f"{why}; recall {at_least} is out of reach".removeprefix("; ")
    one = _seconds(index, asked)
    return Choice(index, kind, found, build, 1 / one, plain.exact_per_second, plain.measured_on, why)


def _because(choice: Choice, why: str) -> Choice:
    return Choice(**{**vars(choice), "why": why})


def _some(queries: Tensor, seed: int) -> Tensor:
    """Return up to 256 of the queries, chosen at random."""
    if len(queries) <= _QUERIES:
        return queries
    chosen = np.random.default_rng(seed).choice(len(queries), _QUERIES, replace=False)
    return queries[torch.from_numpy(np.sort(chosen)).to(queries.device)]


def _seconds(index: ExactIndex | HnswIndex | IvfIndex, queries: Tensor) -> float:
    """Return the seconds of one query in a batch: the better of two runs."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        index.search(queries, _K)
        times.append(time.perf_counter() - start)
    return min(times) / len(queries)
