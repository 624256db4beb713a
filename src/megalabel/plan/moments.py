"""What comes and goes: the moments of a training at which memory is at its most."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from megalabel.plan._step import step_moments
from megalabel.plan.fitted import fitting_parts
from megalabel.plan.held import held, parameters
from megalabel.plan.result import Memory, Part
from megalabel.plan.tensor import FLOAT, tensor

if TYPE_CHECKING:
    from megalabel.batching.settings import NegativeSettings
    from megalabel.plan.case import Case

__all__ = ["memory"]

# Of megalabel.encoders: texts that are encoded at once; of megalabel.index: queries and labels of a product.
ENCODED, QUERIES, BLOCK = 1_024, 256, 16_384
_COUNTED = 29  # bytes a token while the frequency of tokens is counted,
_TEXTS = 65_536  # in so many texts at once
_LOOKED_UP = 110  # bytes a label while points and labels of the same name are looked for


def memory(case: Case, clustered: int | None = None) -> Memory:
    """Return all that one device holds in a training, moment by moment.

    ``clustered`` is the number of labels that a stage has grouped into those of the case.
    """
    best = Part("best state", parameters(case), "read from its checkpoint, mapped", host=True)
    found = {
        "reading": _reading(case),
        "clusters of labels": _clusters(case, clustered),
        "start": _start(case),
        **step_moments(case),
        "refresh": _refresh(case),
        "evaluation": _evaluation(case),
        "fitted heads": fitting_parts(case),
        "best state": (best,),
    }
    moments = {name: tuple(part for part in parts if part.bytes > 0) for name, parts in found.items()}
    stay = held(case)
    if clustered is not None:
        rows, width = case.encoder.table
        size = FLOAT * (case.encoder.dense + rows * width)
        stay = (*stay, Part("encoder of the clusters", size, "as large as the encoder"))
    return Memory(stay, {name: parts for name, parts in moments.items() if parts}, case.gpu)


def _reading(case: Case) -> tuple[Part, ...]:
    """Names of labels are looked up; encoders with a table of features count how many texts have each."""
    labels = case.sizes.labels
    names = Part("names looked up", labels * _LOOKED_UP, f"{labels:,} labels x {_LOOKED_UP} B", host=True)
    blocks = min(case.sizes.points, _TEXTS) * case.query_items, min(labels, _TEXTS) * case.label_items
    tokens = max(blocks) * bool(case.encoder.table[0])
    counted = Part(f"{case.unit} counted", tokens * _COUNTED, f"{tokens:,.0f} x {_COUNTED} B", host=True)
    return (max(names, counted, key=lambda part: part.bytes),)


def _clusters(case: Case, clustered: int | None) -> tuple[Part, ...]:
    """A stage groups labels by the mean of their points, whose vectors are all there."""
    if clustered is None:
        return ()
    dim = case.encoder.dim
    return tensor("query vectors", case.rows, dim, host=True), tensor("means of points", clustered, dim, host=True)


def _start(case: Case) -> tuple[Part, ...]:
    """Free vectors that start from texts and points: sums lie in the tables, beside blocks of texts and of labels."""
    starting = [head for head in case.heads if getattr(head.settings, "init", "random") != "random"]
    if not starting:
        return ()
    widest = max(head.dim for head in starting)
    return (
        tensor("vectors of a block of texts", min(BLOCK, max(case.rows, case.own_labels)), case.total_dim, times=2),
        tensor("sums of a block of labels", min(4 * BLOCK, case.own_labels), widest, times=3),
        _encoding(case),
    )


def _encoding(case: Case) -> Part:
    """Texts on their way through the encoder, without a graph."""
    size = case.encoder.backward(ENCODED * case.query_items, ENCODED)
    return Part("texts being encoded", size, f"{ENCODED:,} at a time", pieces=8)


def _largest(*ways: list[Part]) -> list[Part]:
    return max(ways, key=lambda way: sum(part.bytes for part in way))


def _label_side(case: Case) -> list[Part]:
    """Vectors of all labels for search: encoded, twice where texts repeat, then projected and scaled by each head."""
    labels, dim = case.own_labels, case.encoder.dim * case.reads
    projected = max((head.dim for head in case.heads if head.text and head.settings.projection != "none"), default=0)
    found = [
        tensor("encoded labels", labels, dim),
        tensor("label vectors", labels, case.total_dim / len(case.heads), times=len(case.heads)),
        tensor("label vectors", labels, projected, note="being projected"),
        _encoding(case),
    ]
    twice = [tensor("encoded labels", labels, dim, times=2, note="equal texts put back"), _encoding(case)]
    found = _largest(found, twice)
    return [*found, tensor("encoded labels", labels, dim, host=True, note="before the GPU")] if case.gpu else found


def _refresh(case: Case) -> tuple[Part, ...]:
    """Clusters and hard negatives: vectors of all own queries, of all own labels, and the index."""
    settings, dim = case.recipe.batching, case.mining.dim
    if not case.refreshes:
        return ()
    rows = math.ceil(case.rows / case.devices) * settings.clusters
    joined = [tensor("query vectors", rows, dim, note="being joined"), _encoding(case)]
    ways = (joined, _label_side(case), _index(case, settings.mining)) if settings.mining else (joined,)
    return tensor("query vectors", rows, dim), *_largest(*ways)


def _index(case: Case, settings: NegativeSettings) -> list[Part]:
    """The index that mines, in which approximate ones hold the vectors once more, and the lists it finds."""
    search, dim, labels = settings.search, case.mining.dim, case.own_labels
    options = search.options()
    found = [
        tensor("label vectors", labels, dim),
        tensor("scores of a search", QUERIES, BLOCK),
        tensor("new lists of negatives", case.rows, settings.top, host=True),
    ]
    if search.kind == "ivf":
        each = options.get("pq", dim * FLOAT) + 8
        found.append(Part("inverted lists", labels * each, f"{labels:,} x {each} B", host=True))
        level = 0 if case.mining.settings.normalise and "pq" not in options else labels
        found.append(tensor("vectors being put in", level, dim + 1, host=True))
    if search.kind == "hnsw":
        each = dim * FLOAT + 8 * options.get("M", 16) + 16
        found.append(Part("graph of neighbours", labels * each, f"{labels:,} x {each} B", host=True))
    return found


def _evaluation(case: Case) -> tuple[Part, ...]:
    """Label vectors of all heads, once more side by side, validation vectors, and scores of a block."""
    labels = case.own_labels
    folded = [
        tensor("label vectors", labels, case.total_dim / len(case.heads), times=len(case.heads)),
        tensor("label vectors", labels, case.total_dim, note="side by side"),
        tensor("scores of a search", QUERIES, BLOCK),
    ]
    vectors = tensor("validation vectors", case.watched, case.encoder.dim / 2 + case.total_dim, times=2)
    return *_largest(_label_side(case), folded), vectors
