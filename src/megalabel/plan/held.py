"""What stays in memory for the whole of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megalabel.plan.fitted import fitted_parts
from megalabel.plan.numbers import show_bytes
from megalabel.plan.result import Part
from megalabel.plan.tensor import FLOAT

if TYPE_CHECKING:
    from megalabel.plan.case import Case
    from megalabel.plan.sizes import TextSize
    from megalabel.recipes.optimisers import OptimiserSettings

__all__ = ["PROGRAM", "held", "optimiser_state", "parameters"]

PROGRAM = 270e6  # Python with torch, numpy and scipy
LIBRARIES = 180e6  # what comes with the first texts, steps and searches: tokenizer, fast products, compiled loops
CONTEXT = 600e6  # that the driver of a GPU and its libraries take
_OBJECT, _ROUND = 49, 16  # bytes of a Python string beside its characters, and what sizes are rounded up to
_NAME = 10  # characters of a uid


def held(case: Case) -> tuple[Part, ...]:
    """Return the parts that stay, on one device and in its process."""
    recipe, encoder, labels = case.recipe, case.encoder, case.own_labels
    rows, width = encoder.table
    table = rows * width * FLOAT
    dense = encoder.dense * FLOAT
    matrices = sum(head.matrices(encoder.dim) for head in case.heads) * FLOAT
    free = [head for head in case.heads if head.free]
    biased = [head for head in case.heads if head.settings.bias]
    share = f"{case.sizes.labels:,} labels" + (f" / {case.devices}" if case.devices > 1 else "")
    parts = [
        Part("encoder", dense, f"{encoder.dense:,} weights x 4 B"),
        Part("feature table", table, f"{rows:,} rows x {width} x 4 B"),
        Part("head matrices", matrices, "projections, query matrices"),
        Part(
            "free vectors",
            labels * FLOAT * (sum(head.dim for head in free) + len(biased)),
            f"{share} x {' + '.join(str(head.dim) for head in free) or '0'} x 4 B",
        ),
        Part("optimiser", optimiser_state(case), _optimisers(case)),
    ]
    if recipe.training.refit:
        whole = sum(part.bytes for part in parts[:4])
        parts.append(Part("weights of the first training", whole, "kept while the second runs"))
        again = sum(part.bytes for part in fitted_parts(case))
        parts.append(Part("heads fitted after the first training", again, "kept while the second runs", host=True))
    if case.gpu:
        parts.append(Part("driver", CONTEXT, "taken as given"))
    parts += [_data(case), _tokens(case)]
    lists = recipe.batching.mining
    if lists is not None and case.refreshes:
        rows = case.rows
        parts.append(Part("mined lists", rows * lists.top * 4, f"{rows:,} rows x {lists.top} x 4 B", host=True))
    if recipe.batching.clusters and case.refreshes:
        parts.append(Part("clusters", case.rows * 8, f"{case.rows:,} rows x 8 B", host=True))
    parts.append(Part("program", PROGRAM + LIBRARIES, "Python, torch, compiled code", host=True))
    return tuple(part for part in parts if part.bytes > 0)


def parameters(case: Case) -> float:
    """Return the bytes of all weights on one device."""
    names = ("encoder", "feature table", "head matrices", "free vectors")
    return sum(part.bytes for part in held(case) if part.name in names)


def optimiser_state(case: Case) -> float:
    """Return the state of the optimisers: two numbers a weight for AdamW, one a row for row-wise Adagrad."""
    training, encoder = case.recipe.training, case.encoder
    tables = training.tables or training.encoder.rowwise()
    total = 0.0
    if case.learns:
        rows, width = encoder.table  # the last number of a row is a weight of its own
        total += _state(training.encoder, 1, encoder.dense) + _state(tables, rows, width - 1) + _state(tables, rows, 1)
    for head in case.heads:
        if head.trained:
            total += _state(training.heads or training.encoder, 1, head.matrices(encoder.dim))
            total += _state(tables, case.own_labels, head.dim) if head.free else 0.0
            total += _state(training.heads or training.encoder, case.own_labels, 1) if head.settings.bias else 0.0
    return total


def _state(settings: OptimiserSettings, rows: int, width: int) -> float:
    return float(FLOAT * settings.state_numbers(rows, width)) if rows * width else 0.0


def _optimisers(case: Case) -> str:
    training = case.recipe.training
    tables = "lazy_adamw" if training.tables is None else training.tables.kind
    has_table = case.encoder.table[0] or any(head.free for head in case.heads)
    return training.encoder.kind + (f", tables {tables}" if has_table else "")


def _data(case: Case) -> Part:
    """Return texts and names as Python strings, and pairs as two numbers each, of all splits and labels."""
    sizes = case.sizes
    index = 8 if sizes.pairs > 2**31 else 4
    pairs = 8 + sizes.labels_per_point * (4 + index)
    test = _string(sizes.query) + _string(None) + pairs
    point = test + 16 + pairs  # the set before validation rows left it is kept as well
    label = _string(sizes.label) + _string(None)
    total = sizes.points * point + sizes.tests * test + sizes.labels * label
    how = f"{sizes.points:,} points x {point:.0f} B, {sizes.labels:,} labels x {label:.0f} B"
    return Part("texts and targets", total, how, host=True)


def _string(text: TextSize | None) -> float:
    size = _OBJECT + (_NAME if text is None else text.characters)
    return size + _ROUND / 2 + 8


def _tokens(case: Case) -> Part:
    """Return the token store: mapped from disk, so that the system may drop what is not in use."""
    each = 2 if case.recipe.encoder.kind == "transformer" else 4
    queries = case.rows * (8 + each * case.query_items)
    labels = case.sizes.labels * (8 + each * case.label_items) if case.reads else 0.0
    total = queries + labels
    return Part("tokens", total, f"{show_bytes(queries)} of queries, the rest of labels; mapped from disk", host=True)
