"""What one device and its process hold: the parts that stay, and those that come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megalabel.cost import FLOAT, Part, in_main_memory, tensor
from megalabel.data.arrays import map_above
from megalabel.index.cost import search_cost
from megalabel.index.exact import BATCH, BLOCK
from megalabel.network.vectors import QUERY_BLOCK
from megalabel.plan.numbers import show_bytes
from megalabel.plan.step import step_moments

if TYPE_CHECKING:
    from megalabel.batching.negatives import NegativeSettings
    from megalabel.encoders.text_size import TextSize
    from megalabel.plan.workload import Workload
    from megalabel.recipes.optimisers import OptimiserSettings

__all__ = ["PROGRAM", "Memory", "largest_stage", "memory", "weight_bytes"]

PROGRAM = 270e6  # Python with torch, numpy and scipy
# Loaded with the first texts, steps and searches, as measured on tiny trainings: torch's optimisers and products 85 MB,
# numba with LLVM and its loops 110, a tokenizer 25, the rest Python.
_LIBRARIES = 235e6
_DRIVER = 600e6  # taken by the driver of a GPU and its libraries
_OBJECT, _ROUND, _NAME = 49, 16, 10  # bytes of a Python string beside its characters, its rounding; characters of a uid
_LOOKED_UP = 28  # bytes per label whose name is looked up: its hash, sorted, and in what order
_CHOSEN = 40  # bytes per point of which some are held out: its item, in order, and its turn
_PLACE = 8  # bytes of where a text begins, or of the number of a row
_COLUMN, _CELL = 36, 24  # bytes per column of n-grams, and per n-gram of a row
_ONCE = ("reading", "clusters of labels", "start")  # moments before the first step; all others recur


@dataclass(frozen=True)
class Memory:
    """What one device (and its process) holds: parts that stay, and parts of moments that come and go."""

    held: tuple[Part, ...]
    moments: dict[str, tuple[Part, ...]]
    gpu: bool

    def total(self, moment: str, *, host: bool) -> float:
        """Return the bytes at a moment, on the device or (with a GPU) in main memory; without, both are one."""
        parts = [part for part in (*self.held, *self.moments[moment]) if not self.gpu or part.host == host]
        return sum(part.bytes for part in parts) + (self.kept(moment) if host or not self.gpu else 0.0)

    def kept(self, moment: str) -> float:
        """Return what the C library keeps from other moments: small blocks that were freed."""
        small = {
            name: sum(part.bytes for part in parts if part.small and (part.host or not self.gpu))
            for name, parts in self.moments.items()
        }
        before = list(small)[: list(small).index(moment) + 1] if moment in _ONCE else list(small)
        return max(small[name] for name in before) - small[moment]

    def peak(self, *, host: bool = False) -> tuple[str, float]:
        """Return the moment with the most memory, and how much."""
        totals = {name: self.total(name, host=host or not self.gpu) for name in self.moments}
        name = max(totals, key=lambda moment: totals[moment])
        return name, totals[name]


def memory(load: Workload) -> Memory:
    """Return all that one device holds in a training of one stage, moment by moment."""
    best = Part("best state", weight_bytes(load), "read from its checkpoint, mapped", host=True)
    selects = load.recipe.training.refit is not True  # a second training, which holds more, takes its last state
    moments = {
        "reading": _reading(load),
        "clusters of labels": _clusters(load),
        "start": _start(load),
        **step_moments(load),
        "refresh": _refresh(load),
        "evaluation": _evaluation(load),
        "fitted heads": (*_fitted(load), *_fitting(load)),
        "best state": (best,) * selects,
    }
    moments = {name: tuple(part for part in parts if part.bytes > 0) for name, parts in moments.items()}
    held = tuple(part for part in _held(load) if part.bytes > 0)
    return Memory(held, {name: parts for name, parts in moments.items() if parts}, load.gpu)


def largest_stage(load: Workload) -> tuple[Workload, Memory]:
    """Return the stage that takes the most memory; the last of several with the same."""
    stages = [(stage, memory(stage)) for stage in reversed(load.stages())]
    return max(stages, key=lambda item: item[1].peak()[1])


# ------------------------------------------------------------------ what stays


def _weights(load: Workload) -> list[Part]:
    """Return the weights that one device holds."""
    tables = [encoder.cost.table for encoder in load.encoders if encoder.cost.table[0]]
    dense = sum(encoder.cost.dense for encoder in load.encoders)
    matrices = sum(head.cost.matrices for head in load.heads)
    rows = [head for head in load.heads if head.cost.table or head.cost.bias]
    share = f" / {load.devices}" if load.devices > 1 else ""
    free = " + ".join(
        f"{head.size:,} x ({head.cost.table} x {head.cost.table_bytes} B + {head.cost.bias} x {FLOAT} B)"
        if head.cost.bias
        else f"{head.size:,} x {head.cost.table} x {head.cost.table_bytes} B"
        for head in rows
    )
    return [
        Part("encoder", dense * FLOAT, f"{dense:,} weights x 4 B"),
        Part(
            "feature table",
            sum(size * width for size, width in tables) * FLOAT,
            " + ".join(f"{size:,} rows x {width}" for size, width in tables) + " x 4 B",
        ),
        Part("head matrices", matrices * FLOAT, "projections, query matrices"),
        Part(
            "shared vectors",
            FLOAT * sum(head.cost.shared * head.dim for head in load.heads),
            " + ".join(f"{head.cost.shared:,} x {head.dim}" for head in load.heads if head.cost.shared) + " x 4 B",
        ),
        Part(
            "free vectors",
            sum(
                load.own(head.size) * (head.cost.table * head.cost.table_bytes + head.cost.bias * FLOAT)
                for head in rows
            ),
            f"{free}{share}",
        ),
        *(tensor("kept beside weights", load.own(head.size), head.cost.kept) for head in load.heads if head.cost.kept),
    ]


def weight_bytes(load: Workload) -> float:
    """Return the bytes of all weights on one device."""
    return sum(part.bytes for part in _weights(load))


def _held(load: Workload) -> list[Part]:
    """Return the parts that stay, on one device and in its process."""
    batching, weights = load.recipe.batching, _weights(load)
    parts = [*weights, Part("optimiser", _optimiser_bytes(load), _optimiser_names(load))]
    if load.recipe.training.averaging is not None:
        parts.append(Part("average of the weights", weight_bytes(load), "one more copy"))
    if load.recipe.training.refit:
        note = "kept while the second runs"
        if load.recipe.training.refit is True:  # the other kind goes on with these weights
            parts.append(Part("weights of the first training", weight_bytes(load), note))
        fitted = sum(part.bytes for part in _fitted(load))
        parts.append(Part("heads fitted after the first training", fitted, note, host=True))
    if load.gpu:
        parts.append(Part("driver", _DRIVER, "taken as given"))
    parts += [_data(load), _tokens(load)]
    if batching.mining is not None and load.refreshes:
        parts.append(tensor("mined lists", load.rows, batching.mining.top, host=True))
    if batching.bm25_top:
        parts.append(tensor("BM25 lists", load.rows, batching.bm25_top, host=True))
    if batching.clusters and load.refreshes:
        parts.append(in_main_memory("clusters", load.rows, 8))
    parts.append(Part("program", PROGRAM + _LIBRARIES, "Python, torch, compiled code", host=True))
    for part in load.encoders:
        if not part.trained and part.labels:
            note = "of a frozen encoder, encoded once"
            parts.append(tensor("encoded labels", load.own(load.labels), part.cost.dim, note=note))
    for head in load.heads:
        if head.cost.points:
            lists = load.labels * head.cost.points + load.rows * head.cost.point_labels
            parts.append(Part("lists of neighbours", 8 * lists, f"{lists:,.0f} x 8 B"))
    return parts


def _optimiser_bytes(load: Workload) -> float:
    """Return the state of the optimisers: two numbers per weight for AdamW, one per row for row-wise Adagrad."""
    training = load.recipe.training
    tables = training.tables or training.encoder.rowwise()
    dense = training.heads or training.encoder
    total = 0
    for encoder in load.encoders:
        if encoder.trained:
            rows, width = encoder.cost.table  # the last number of a row is a weight of its own
            total += _state(training.encoder, 1, encoder.cost.dense)
            total += _state(tables, rows, width - 1) + _state(tables, rows, 1)
    for head in load.heads:
        if head.trained and not head.frozen:
            labels = load.own(head.size)
            total += _state(dense, 1, head.cost.matrices)
            total += _state(tables, labels, head.cost.table, head.cost.table_bytes)
            total += _state(dense, labels, head.cost.bias) + _state(tables, head.cost.shared, head.dim)
    return float(total)


def _state(settings: OptimiserSettings, rows: int, width: int, item: int = FLOAT) -> int:
    return settings.state_bytes(rows, width, item) if rows > 0 and width > 0 else 0


def _optimiser_names(load: Workload) -> str:
    training = load.recipe.training
    tables = "lazy_adamw" if training.tables is None else training.tables.kind
    has_table = any(part.cost.table[0] for part in load.encoders) or any(
        head.cost.table or head.cost.shared for head in load.heads
    )
    return training.encoder.kind + (f", tables {tables}" if has_table else "")


def _data(load: Workload) -> Part:
    """Return texts, names and pairs of all splits and labels, but for those that are mapped from disk.

    The set before validation rows left it is kept as well: it shares the texts, and has pairs of its own.
    """
    sizes = load.sizes
    held = mapped = 0.0
    sides = (sizes.points, sizes.query), (sizes.tests, sizes.query), (sizes.labels, sizes.label)
    for count, text in ((count, text) for count, own in sides for text in (own, None)):
        if count * _string(text) > map_above():
            mapped += count * (_characters(text) + _PLACE)
        else:
            held += count * _string(text)
    held += 2 * sizes.points * _PLACE  # which rows of texts and of names are left
    cell = 4 + (8 if sizes.pairs > 2**31 else 4)
    for count, copies in ((sizes.points, 2), (sizes.tests, 1)):
        pairs = count * sizes.labels_per_point * cell
        held += copies * count * _PLACE
        if pairs > map_above():
            mapped += copies * pairs
        else:
            held += copies * pairs
    how = f"{sizes.points:,} points, {sizes.labels:,} labels"
    how += f"; {show_bytes(mapped)} more are mapped from disk, once for all processes" if mapped else ""
    return Part("texts and targets", held, how, host=True)


def _characters(text: TextSize | None) -> float:
    return _NAME if text is None else text.characters


def _string(text: TextSize | None) -> float:
    """Return the bytes of a text in a list."""
    return _OBJECT + _characters(text) + _ROUND / 2 + 8


def _tokens(load: Workload) -> Part:
    """Return the token store: mapped from disk, so that the system may drop what is not in use."""
    queries = labels = 0.0
    for encoder in load.encoders:
        each = encoder.cost.token_bytes
        queries += load.rows * (8 + each * encoder.query_items) if encoder.queries else 0.0
        labels += load.labels * (8 + each * encoder.label_items) if encoder.reads_labels else 0.0
    how = f"{show_bytes(queries)} of queries, the rest of labels; mapped from disk"
    return Part("tokens", queries + labels, how, host=True)


# ------------------------------------------------------------------ what comes and goes


def _reading(load: Workload) -> tuple[Part, ...]:
    """Names of labels are looked up, rows held out; encoders with a table count in how many texts each feature is."""
    parts = [in_main_memory("names looked up", load.labels, _LOOKED_UP)]
    parts.append(in_main_memory("rows to choose from", load.points, _CHOSEN))
    for encoder in load.encoders:
        parts.append(encoder.cost.counting(encoder.query_items, load.points))
        parts.append(encoder.cost.counting(encoder.label_items, load.labels))
    return (max(parts, key=lambda part: part.bytes),)


def _clusters(load: Workload) -> tuple[Part, ...]:
    """Labels are grouped by the mean of their points or by their texts; all these vectors are held."""
    if load.grouped is None:
        return ()
    dim = load.encoders[0].cost.dim
    read = {feature for space in load.recipe.spaces.values() for feature in space.reads}
    parts: list[Part] = []
    if read & {"points", "graph"}:
        parts.append(tensor("query vectors", load.rows, dim, host=True))
        parts.append(tensor("means of points", load.grouped, dim, host=True))
    if "texts" in read:
        parts.append(tensor("label vectors", load.grouped, dim, host=True))
    if "ngrams" in read:
        cells = load.rows * load.ngrams_per_text
        parts.append(in_main_memory("columns of n-grams", sum(load.ngram_columns.values()), _COLUMN))
        parts.append(in_main_memory("n-grams of rows", cells, _CELL, pieces=3))
        means = cells * load.sizes.labels_per_point
        parts.append(in_main_memory("n-grams of labels", means, _CELL, pieces=3))
    return tuple(parts)


def _start(load: Workload) -> tuple[Part, ...]:
    """Free vectors that start from texts and points: sums are in the tables, beside blocks of texts and of labels."""
    heads = [head for head in load.heads if head.cost.init_from_texts]
    if not heads:
        return ()
    labels = load.own(max(head.size for head in heads))
    texts = min(QUERY_BLOCK, max(load.rows, labels))
    return (
        tensor("vectors of a block of texts", texts, load.dim, times=2),
        tensor("sums of a block of labels", min(4 * QUERY_BLOCK, labels), max(head.dim for head in heads), times=3),
        *(tensor("vectors of all labels", load.labels, head.dim, times=head.cost.init_labels) for head in heads),
        *_encoding(load),
    )


def _encoding(load: Workload) -> list[Part]:
    """Return texts inside the encoder that takes most, without a graph."""
    return _largest(*(encoder.cost.encoding(encoder.query_items) for encoder in load.encoders))


def _largest(*lists: list[Part]) -> list[Part]:
    return max(lists, key=lambda parts: sum(part.bytes for part in parts))


def _label_side(load: Workload) -> list[Part]:
    """Return the vectors of all labels for search: encoded (twice if texts repeat), then projected and normalised."""
    labels, count = load.own(load.labels), len(load.heads)
    dim = sum(part.cost.dim for part in load.encoders if part.reads_labels)
    projected = max((head.dim for head in load.heads if head.projects), default=0)
    parts = [
        tensor("encoded labels", labels, dim),
        tensor("label vectors", labels, load.dim / count, times=count),
        tensor("label vectors", labels, projected, note="being projected"),
        *_encoding(load),
    ]
    twice = [tensor("encoded labels", labels, dim, times=2, note="duplicate texts put back"), *_encoding(load)]
    parts = _largest(parts, twice)
    return [*parts, tensor("encoded labels", labels, dim, host=True, note="before the GPU")] if load.gpu else parts


def _refresh(load: Workload) -> tuple[Part, ...]:
    """Clusters and hard negatives: vectors of all queries and labels of this device, and the index."""
    settings, dim = load.recipe.batching, load.mining_head.dim
    if not load.refreshes:
        return ()
    rows = load.own(load.rows) * settings.clusters
    joined = [tensor("query vectors", rows, dim, note="being joined"), *_encoding(load)]
    lists = (joined, _label_side(load), _index(load, settings.mining)) if settings.mining else (joined,)
    return tensor("query vectors", rows, dim), *_largest(*lists)


def _index(load: Workload, settings: NegativeSettings) -> list[Part]:
    """Return the index that mines (approximate ones hold the vectors once more) and the lists it returns."""
    search, dim, labels = settings.search, load.mining_head.dim, load.own(load.labels)
    cost = search_cost(search.kind, labels, dim, **search.options())
    parts = [
        tensor("label vectors", labels, dim),
        tensor("scores of a search", BATCH, BLOCK),
        tensor("new lists of negatives", load.rows, settings.top, host=True),
    ]
    if search.kind != "exact":
        parts.append(in_main_memory(f"index ({search.kind})", labels, cost.label_bytes))
    if search.kind == "ivf" and (not load.mining_head.settings.normalise or "pq" in search.options()):
        parts.append(tensor("vectors being added", labels, dim + 1, host=True))
    return parts


def _evaluation(load: Workload) -> tuple[Part, ...]:
    """Label vectors of all heads, once more side by side, validation vectors, and scores of a block."""
    labels, count = load.own(load.labels), len(load.heads)
    folded = [
        tensor("label vectors", labels, load.dim / count, times=count),
        tensor("label vectors", labels, load.dim, note="side by side"),
        tensor("scores of a search", BATCH, BLOCK),
    ]
    encoded = sum(part.cost.dim for part in load.encoders if part.queries)
    vectors = tensor("validation vectors", load.validation, encoded / 2 + load.dim, times=2)
    return *_largest(_label_side(load), folded), vectors


def _fitted(load: Workload) -> list[Part]:
    """Return what the fitted heads hold, in main memory: a rough estimate, since texts share n-grams."""
    costs = [head.cost(load) for head in load.recipe.fitted_heads.values()]
    parts = [part for cost in costs for part in cost.held]
    rows = max((cost.ngram_rows for cost in costs), default=0)
    if not rows:
        return parts
    columns = sum(load.ngram_columns.values())
    ngrams = in_main_memory("n-grams of rows", rows * load.ngrams_per_text, _CELL, pieces=3)
    return [in_main_memory("columns of n-grams", columns, _COLUMN), ngrams, *parts]


def _fitting(load: Workload) -> list[Part]:
    """Return what comes and goes while a head is fitted: that of the one with the most."""
    costs = [list(head.cost(load).fitting) for head in load.recipe.fitted_heads.values()]
    return _largest(*costs) if costs else []
