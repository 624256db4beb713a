"""What comes and goes within a step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from megalabel.plan.products import products
from megalabel.plan.result import Part
from megalabel.plan.tensor import FLOAT, tensor

if TYPE_CHECKING:
    from megalabel.plan.case import Case, HeadSize

__all__ = ["step_moments"]

# Of megalabel.losses: bytes of a block of scores and of all of them, and the narrowest block; of the optimisers: rows
# that are updated at once.
CACHE, BUDGET, NARROWEST = 8 << 20, 160 << 20, 64
UPDATED = 16_384
_HASHED = 45  # bytes a token while equal texts are looked for,
_AT_ONCE, _OF_TEXT = 65_536, 48  # so many texts at once, and bytes a text for all of them
_TRANSPOSED = 40  # bytes a feature while the gradient of a table is made
_NORMALISED = 4  # tensors beside the gradient while that of a normalised vector is taken back
_MANY, _BY_BLOCKS = 65_536, 2  # of megalabel.heads: rows from which on that is done in blocks, and tensors then


def step_moments(case: Case) -> dict[str, tuple[Part, ...]]:
    """Return the moments of a step, in their order."""
    return {
        "equal texts": _equal_texts(case),
        "loss": _loss(case),
        "backward": _backward(case),
        "encoder again": _again(case),
        "update": _update(case),
    }


def _trained(case: Case) -> list[HeadSize]:
    return [head for head in case.heads if head.trained]


def _sides(case: Case) -> list[tuple[str, int, float]]:
    """Return what is encoded in a step: name, texts, items of each."""
    sides = [("queries", case.own_batch, case.query_items)]
    return [*sides, ("label texts", case.own_pool, case.label_items)] if case.reads else sides


def _equal_texts(case: Case) -> tuple[Part, ...]:
    """Label texts are compared by hashes in every step that takes all of them, so that each is encoded once."""
    if not (case.all_labels and case.reads):
        return ()
    tokens = min(case.own_labels, _AT_ONCE) * case.label_items
    size = tokens * _HASHED + case.own_labels * _OF_TEXT
    how = f"{tokens:,.0f} tokens x {_HASHED} B, {case.own_labels:,} texts x {_OF_TEXT} B"
    return (Part("label texts told apart", size, how, True, 6),)


def _left_over(case: Case) -> tuple[Part, ...]:
    """Return the same, which the C library keeps beneath what follows where its pieces are small."""
    return tuple(part for part in _equal_texts(case) if part.small)


def _graph(case: Case, name: str, texts: int, items: float) -> Part:
    size = case.encoder.graph(texts * items, texts, gpu=case.gpu, half=case.half)
    pieces = 12 * getattr(case.encoder, "layers", 0) or 3
    return Part(f"activations of {name}", size, f"{texts:,} texts x {items:.0f} {case.unit}", pieces=pieces)


def _graphs(case: Case) -> list[Part]:
    """Activations of texts that fit into one chunk: they are held until their backward pass."""
    return [_graph(case, *side) for side in _sides(case) if side[1] <= case.chunk and case.learns]


def _loss(case: Case) -> tuple[Part, ...]:
    """Vectors of queries and labels, and blocks of scores; the gradients of vectors are made with the value."""
    heads, labels = _trained(case), case.own_pool
    dims = sum(head.dim for head in heads)
    kept = case.reads and (labels <= _MANY or any(head.settings.projection != "none" for head in heads if head.text))
    return (
        *_graphs(case),
        tensor("encoded labels", labels * kept, case.encoder.dim),
        tensor("label vectors", labels, max(head.dim for head in heads)),
        tensor("gradients of label vectors", labels, dims),
        tensor("query vectors", case.batch, dims, times=3),
        _mask(case),
        _blocks(case),
        *_left_over(case),
    )


def _mask(case: Case) -> Part:
    masked = case.sizes.filtered and case.recipe.batching.labels != "candidates"
    size = case.batch * case.own_pool if masked else 0
    return Part("mask of filtered pairs", size, f"{case.batch:,} x {case.own_pool:,} x 1 B")


def _blocks(case: Case) -> Part:
    """The scores that are there at a time: some blocks stored between two passes, four at work."""
    if case.recipe.batching.labels == "candidates":
        return tensor("scores", case.batch, case.width, times=4)
    column = case.batch * FLOAT
    width = max(NARROWEST, min(CACHE, BUDGET // 4) // column // NARROWEST * NARROWEST)
    count = math.ceil(case.own_pool / width)
    passes = any(products(head)[0] > 1 for head in _trained(case))
    stored = min(max(0, BUDGET // (width * column) - 4), count) if passes else 0
    return tensor("blocks of scores", case.batch, min(width, case.own_pool), times=stored + 2 + min(2, count))


def _backward(case: Case) -> tuple[Part, ...]:
    """Through the heads: what they kept, the gradients, and more while a normalised vector is taken back."""
    heads, labels = _trained(case), case.own_pool
    few, most = labels <= _MANY, _NORMALISED if labels <= _MANY else _BY_BLOCKS
    needed = any(
        head.text and ((head.settings.normalise and few) or head.settings.projection != "none") for head in heads
    )
    widest = max(heads, key=lambda head: head.dim * (most if head.settings.normalise else 1))
    times = most if widest.settings.normalise else 1
    dims = sum(head.dim for head in heads)
    return (
        *_graphs(case),
        tensor("encoded labels", labels * needed, case.encoder.dim),
        tensor("kept by the heads", labels, sum(head.dim * _saved(head, case) for head in heads)),
        tensor("gradients of label vectors", labels, dims),
        tensor("gradients on their way", labels, widest.dim, times=times, note="normalised" if times > 1 else ""),
        tensor("query vectors", case.batch, dims, times=6),
        _mask(case),
        *_left_over(case),
    )


def _saved(head: HeadSize, case: Case) -> int:
    """Return how many tensors [labels of the step, dim] a head keeps for its backward pass."""
    settings, found = head.settings, 0
    if head.free:
        found += 2 * (getattr(settings, "row_dropout", 0.0) > 0)
        found += not (case.all_labels and not head.text)  # rows of the pool; all of them are the table itself
    if head.text and settings.projection != "none":
        found += 1 + 2 * (settings.dropout > 0)
    return found


def _again(case: Case) -> tuple[Part, ...]:
    """The second round of the gradient cache, or the first backward pass of what fits into a chunk."""
    if not case.learns:
        return ()
    encoder, found = case.encoder, []
    chunked = [side for side in _sides(case) if side[1] > case.chunk]
    name, texts, items = max(chunked or _sides(case), key=lambda side: min(side[1], case.chunk) * side[2])
    part = min(texts, case.chunk)
    if chunked:
        found.append(_graph(case, f"a chunk of {name}", part, items))
        found.append(tensor(f"gradients of {name}", texts, encoder.dim))
    # What fits into a chunk waits for its turn: in every step without others that do not, else in the first.
    found += _graphs(case)
    going = encoder.backward(part * items, part)
    found.append(Part("gradients in the encoder", going, "on their way through a layer", pieces=4))
    rows, _ = _table_gradient(case)
    if rows:
        features = part * items
        how = f"{features:,.0f} features x {_TRANSPOSED} B"
        found.append(Part("features by row", features * _TRANSPOSED, how, True, 5))
        found.append(
            tensor("gradient of the feature table", rows / 3, encoder.table[1], times=3, note="being added up")
        )
    return (*found, Part("gradients of the encoder", encoder.dense * FLOAT, "as many as weights", pieces=8))


def _table_gradient(case: Case) -> tuple[float, float]:
    """Return the rows of gradient that are held while the last chunk's are added, and while they are put in order.

    Adding makes a new list as long as both; it is then joined in the order of rows.
    """
    encoder, sizes, sides = case.encoder, case.sizes, _sides(case)
    rows = encoder.table[0]
    if not rows or not case.learns:
        return 0.0, 0.0
    queries = encoder.touched(sizes.query, case.own_batch)
    labels = encoder.touched(sizes.label, case.own_pool) if case.reads else 0.0
    union = queries + labels - queries * labels / rows
    if _together(case):
        return union, union  # one list, in order
    if max(texts for _, texts, _ in sides) <= case.chunk:
        return 2 * (queries + labels), 2 * union
    name, texts, _ = max(sides, key=lambda side: side[1])
    last = encoder.touched(sizes.query if name == "queries" else sizes.label, min(case.chunk, texts))
    return 2 * union + 3 * last, 2 * union + last


def _together(case: Case) -> bool:
    """Whether all texts of a step are encoded in one go."""
    lengths, sides = case.recipe.encoder, _sides(case)
    alike = len(sides) == 1 or lengths.query_length == lengths.label_length
    return alike and sum(texts for _, texts, _ in sides) <= case.chunk


def _update(case: Case) -> tuple[Part, ...]:
    """The optimisers' step: gradients of tables in order of rows, and rows being updated."""
    encoder, labels = case.encoder, case.own_pool
    _, rows = _table_gradient(case)
    free = sum(head.dim for head in case.heads if head.free and head.trained)
    dim = max(encoder.dim if rows else 0, *(head.dim for head in case.heads))
    return (
        tensor("gradient of the feature table", rows / 2, encoder.table[1], times=2, note="as added up, and in order"),
        Part("gradients of the encoder", encoder.dense * FLOAT * case.learns, "as many as weights", pieces=8),
        tensor("gradients of free vectors", labels, free, times=1 if case.all_labels else 2),
        tensor("rows being updated", UPDATED * bool(rows or free), dim, times=3),
    )
