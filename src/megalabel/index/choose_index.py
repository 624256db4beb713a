"""Choose an index by measuring recall and speed on the labels, queries and machine at hand."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.errors import DataError, SettingError
from megalabel.index._approximate import Approximate, check_settings
from megalabel.index._lists import PER_LIST, ROUNDS
from megalabel.index.build_index import AnyIndex, build_index, check_kind
from megalabel.index.engines.index import ENGINES, EngineIndex
from megalabel.index.exact import ExactIndex
from megalabel.index.ivf import list_count
from megalabel.index.recall import recall

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Choice", "check_choice", "choose_index", "code_bytes", "measure_engine", "plain_choice"]

EFFORTS = {
    "hnsw": "ef_search",
    "ivf": "nprobe",
    "beam": "beam",
    **{kind: names[-1] for kind, names in ENGINES.items()},
}  # the setting that trades speed for recall
_QUERIES = 256  # queries to measure with
_MIN_EFFORT = 8  # first effort to try
_RUNS, _TIMED = 8, 1.0  # largest number of timed runs, and of seconds they take
_SHORT = 10.0  # seconds of exact search that are not worth saving
_MILLIONS = 1_000_000  # with this many labels, auto stores codes instead of vectors in the lists
_PER_BYTE = 8  # dimensions per byte of a code


@dataclass(frozen=True)
class Choice:
    """An index with its measured recall and speed; ``str`` gives one line."""

    index: AnyIndex | EngineIndex
    kind: str
    k: int
    recall: float  # @k, against exact search
    build_seconds: float
    queries_per_second: float  # in batches, with this k
    exact_per_second: float
    measured_on: str
    why: str

    def __str__(self) -> str:
        effort = EFFORTS.get(self.kind)
        how = "" if isinstance(self.index, ExactIndex) or not self.index.effort else f" ({effort} {self.index.effort})"
        beside = "" if self.kind == "exact" else f" (exact {self.exact_per_second:,.0f})"
        quality = f"recall@{self.k} {self.recall:.3f} on {self.measured_on}"
        return (
            f"{self.kind}{how} over {len(self.index):,} labels: {quality}, built in {self.build_seconds:.1f} s, "
            f"{self.queries_per_second:,.0f} queries/s{beside}; {self.why}"
        )


def choose_index(
    vectors: Tensor,
    queries: Tensor | None = None,
    kind: str = "auto",
    *,
    k: int = 10,
    searches: int = 100_000,
    at_least: float = 0.95,
    seed: int = 0,
    **settings: Any,
) -> Choice:
    """Build an index and measure it: recall@k against exact search, seconds to build, queries per second.

    The effort of an approximate index (nprobe, ef_search, beam) is set to the smallest power of two
    that reaches this recall, unless the settings contain it. ``auto`` times exact search on
    this machine and keeps it if all expected searches take 10 s or less, or less than
    clustering the labels would. Otherwise it builds inverted lists, measures them, and takes
    them if they need at most half the time, build included. With a million labels or more the
    lists hold one byte per eight dimensions of a vector. A graph (``hnsw``) takes far longer
    to build, so ``auto`` never builds one.

    Args:
        vectors: label vectors [L, d].
        queries: [Q, d] real queries; up to 256 of them are used. By default label vectors
            are used, which is less reliable.
        kind: exact, hnsw, ivf, beam or auto.
        k: labels returned per query.
        searches: expected number of queries, for ``auto``.
        at_least: recall@k an approximate index must reach, 0 to 1.
        seed: seed of the index and of the choice of queries.
        settings: settings of the kind, as in :func:`build_index`.

    >>> labels = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    >>> choose_index(labels, searches=1_000).kind
    'exact'
    >>> choose_index(labels, kind="ivf", at_least=1.0).recall
    1.0
    """
    check_choice(kind, k=k, searches=searches, at_least=at_least, seed=seed, **settings)
    plain, sample = plain_choice(vectors, queries, k, seed)
    if kind == "exact":
        return plain
    if kind == "auto":
        return _weigh(plain, sample, searches, at_least, seed)
    return _measure(plain, kind, sample, at_least, seed, settings, "asked for")


def plain_choice(
    vectors: Tensor, queries: Tensor | None, k: int, seed: int, removed: Sequence[int] = ()
) -> tuple[Choice, Tensor]:
    """Return exact search, measured, and the queries it was measured with."""
    if queries is not None and len(queries) == 0:
        raise DataError("there are no queries to measure with", remedy="leave queries out, or give some")
    start = time.perf_counter()
    exact = ExactIndex(vectors).remove(removed) if len(removed) else ExactIndex(vectors)
    ready = time.perf_counter() - start
    sample, name = _some(exact.vectors if queries is None else queries, seed), "queries"
    if queries is None:
        name = "label vectors, no queries were given"
    seconds = _seconds(exact, sample, k)
    return Choice(exact, "exact", k, 1.0, ready, 1 / seconds, 1 / seconds, f"{len(sample)} {name}", "asked for"), sample


def code_bytes(dim: int) -> int:
    """Return the bytes of a code for a vector, as ``auto`` chooses them."""
    return max(1, dim // _PER_BYTE)


def check_choice(
    kind: str, *, k: int = 10, searches: int = 1, at_least: float = 0.95, seed: int = 0, **settings: Any
) -> None:
    """Raise a SettingError for invalid arguments of :func:`choose_index`, before the long work starts."""
    check_kind(kind, settings, "auto", *ENGINES)
    if kind in ENGINES and settings.get(ENGINES[kind][0]) == 0:  # every search compares with all labels
        settings.pop(ENGINES[kind][0])
    check_settings(seed, k=k, searches=searches, **settings)
    if not 0 <= at_least <= 1:
        raise SettingError(f"at_least must lie in 0 to 1, not {at_least}")


def _weigh(plain: Choice, sample: Tensor, searches: int, at_least: float, seed: int) -> Choice:
    """Return exact search, or inverted lists if they need at most half the time."""
    assert isinstance(plain.index, ExactIndex)
    labels, one = len(plain.index), 1 / plain.exact_per_second
    whole = searches * one
    if whole <= _SHORT:
        return _because(plain, f"{searches:,} searches take {whole:.1f} s looking at every label")
    nlist = list_count(labels)  # a product with a centre costs as much as one with a query
    build = one * nlist * (1 + ROUNDS * min(1.0, PER_LIST * nlist / labels))
    if build >= whole:
        return _because(plain, f"clustering takes about {build:.0f} s, {searches:,} exact searches {whole:.0f} s")
    codes = {"pq": code_bytes(plain.index.vectors.shape[1])} if labels >= _MILLIONS else {}
    lists = _measure(plain, "ivf", sample, at_least, seed, codes, "")
    total = lists.build_seconds + searches / lists.queries_per_second
    why = f"for {searches:,} searches ivf takes {total:.0f} s with its build, exact {whole:.0f} s"
    return _because(lists if 2 * total < whole else plain, why)


def _measure(
    plain: Choice, kind: str, sample: Tensor, at_least: float, seed: int, settings: dict[str, Any], why: str
) -> Choice:
    """Build an approximate index, set its effort and time it."""
    assert isinstance(plain.index, ExactIndex)
    start = time.perf_counter()
    index = build_index(plain.index.vectors, kind, seed=seed, **settings)
    build = time.perf_counter() - start
    assert not isinstance(index, ExactIndex)
    measured, missed = _tune(index, plain, sample, None if EFFORTS[kind] in settings else at_least)
    why = f"{why}{missed}".removeprefix("; ")
    seconds = _seconds(index, sample, plain.k)
    return Choice(index, kind, plain.k, measured, build, 1 / seconds, plain.exact_per_second, plain.measured_on, why)


def measure_engine(
    index: EngineIndex, plain: Choice, sample: Tensor, at_least: float, settings: Mapping[str, int], build: float
) -> Choice:
    """Set the effort of an index in an engine, and measure it as the others are.

    Args:
        index: the index.
        plain: exact search over the same labels, measured with the sample.
        sample: [Q, d] queries.
        at_least: the recall to reach.
        settings: those that were asked for.
        build: seconds that writing the table took.
    """
    fixed = EFFORTS[index.kind] in settings or not index.effort
    measured, missed = _tune(index, plain, sample, None if fixed else at_least)
    seconds = _seconds(index, sample, plain.k)
    why = f"table {index.table.place}{missed}"
    return Choice(
        index, index.kind, plain.k, measured, build, 1 / seconds, plain.exact_per_second, plain.measured_on, why
    )


def _tune(index: Approximate | EngineIndex, plain: Choice, sample: Tensor, at_least: float | None) -> tuple[float, str]:
    """Set the least effort that reaches a recall, if there is one to reach; return the recall, and what is missed."""
    if at_least is not None:
        index.effort = _MIN_EFFORT
    measured = recall(index, plain.index, sample, plain.k)
    while at_least is not None and measured < at_least and index.effort < index.most_effort:
        index.effort *= 2
        measured = recall(index, plain.index, sample, plain.k)
    out = at_least is not None and measured < at_least
    return measured, f"; recall {at_least} is out of reach" if out else ""


def _because(choice: Choice, why: str) -> Choice:
    return Choice(**{**vars(choice), "why": why})


def _some(queries: Tensor, seed: int) -> Tensor:
    """Return up to 256 of the queries, chosen at random."""
    if len(queries) <= _QUERIES:
        return queries
    chosen = np.random.default_rng(seed).choice(len(queries), _QUERIES, replace=False)
    return queries[torch.from_numpy(np.sort(chosen)).to(queries.device)]


def _seconds(index: AnyIndex | EngineIndex, queries: Tensor, k: int) -> float:
    """Return the seconds of one query in a batch: the best of a few runs, since the machine may be busy."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < _RUNS and sum(times) < _TIMED):
        start = time.perf_counter()
        index.search(queries, k)
        times.append(time.perf_counter() - start)
    return min(times) / len(queries)
