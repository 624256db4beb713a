"""What comes and goes in the memory of one device within a step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from megalabel.cost import FLOAT, Part, tensor
from megalabel.heads.dense.projections import MANY_ROWS
from megalabel.losses.streaming.blocks import Plan as BlockPlan
from megalabel.training.optim.row_wise import BLOCK as UPDATED_ROWS
from megalabel.types import COMPARED

if TYPE_CHECKING:
    from megalabel.plan.workload import EncoderLoad, HeadLoad, Side, Workload

__all__ = ["step_moments"]

# Bytes as measured: per token and per text while duplicate texts are looked for, and per feature while the gradient of
# a table is computed.
_TOKEN, _TEXT, _FEATURE = 45, 48, 40
_NORMALISED, _IN_BLOCKS = 4, 2  # tensors beside the gradient of a normalised vector; above MANY_ROWS, in blocks


def step_moments(load: Workload) -> dict[str, tuple[Part, ...]]:
    """Return the moments of a step, in order."""
    return {
        "equal texts": _duplicates(load),
        "loss": _loss(load),
        "backward": _backward(load),
        "encoder again": _again(load),
        "update": _update(load),
    }


def _rows(name: str, load: Workload, widths: list[tuple[HeadLoad, float]]) -> Part:
    """Return tensors [labels of the step on this device, width] of several heads as one part."""
    by_pool: dict[int, float] = {}
    for head, width in widths:
        pool = load.own(head.pool)
        by_pool[pool] = by_pool.get(pool, 0) + width
    parts = [tensor(name, pool, width) for pool, width in by_pool.items()]
    return Part(name, sum(part.bytes for part in parts), " + ".join(part.how for part in parts), pieces=len(parts))


def _duplicates(load: Workload) -> tuple[Part, ...]:
    """If a step takes all labels, it compares their texts by hashes to encode each distinct text once."""
    parts = []
    for encoder in load.encoders:
        if load.all_labels and encoder.labels:
            labels = load.own(encoder.labels)
            tokens = min(labels, COMPARED) * encoder.label_items
            how = f"{tokens:,.0f} tokens x {_TOKEN} B, {labels:,} texts x {_TEXT} B"
            parts.append(Part("label texts compared", tokens * _TOKEN + labels * _TEXT, how, True, 6))
    return tuple(parts)


def _left_over(load: Workload) -> tuple[Part, ...]:
    """Return the same, which the C library keeps below what follows if its blocks are small."""
    return tuple(part for part in _duplicates(load) if part.small)


def _graph(load: Workload, encoder: EncoderLoad, name: str, texts: int, items: float) -> list[Part]:
    parts = encoder.cost.graph(texts * items, texts, gpu=load.gpu, half=encoder.half)
    how = f"{texts:,} texts x {items:.0f} {encoder.cost.unit}"
    return [replace(part, name=f"{part.name} of {name}", how=part.how or how) for part in parts]


def _graphs(load: Workload) -> list[Part]:
    """Return the activations of texts that fit into one chunk: they are held until their backward pass."""
    return [
        part
        for encoder in load.encoders
        if encoder.trained
        for side in load.sides(encoder)
        if side.texts <= load.chunk
        for part in _graph(load, encoder, side.name, side.texts, side.items)
    ]


def _encoded(load: Workload, *, backward: bool) -> list[Part]:
    """Return the encoded labels as far as heads still need them."""
    parts = []
    for encoder in load.encoders:
        labels = load.own(encoder.labels)
        few = labels <= MANY_ROWS
        heads = [head for head in load.trained_heads if head.text]
        if backward:
            needed = any((head.settings.normalise and few) or head.projects for head in heads)
        else:
            needed = few or any(head.projects for head in heads)
        parts.append(tensor("encoded labels", labels * needed, encoder.cost.dim))
    return parts


def _loss(load: Workload) -> tuple[Part, ...]:
    """Vectors of queries and labels, and blocks of scores; the gradients of vectors are computed with the value."""
    heads = load.trained_heads
    widest = max(heads, key=lambda head: head.pool * head.dim)
    return (
        *_graphs(load),
        *_encoded(load, backward=False),
        tensor("label vectors", load.own(widest.pool), widest.label_width),
        _rows("gradients of label vectors", load, [(head, head.label_width) for head in heads]),
        tensor("query vectors", load.batch, sum(head.dim for head in heads), times=3),
        _mask(load),
        max((_blocks(load, head) for head in heads), key=lambda part: part.bytes),
        *_left_over(load),
    )


def _mask(load: Workload) -> Part:
    heads = [head for head in load.trained_heads if head.settings.space is None and not head.listed]
    labels = load.own(max((head.pool for head in heads), default=0))
    batching = load.recipe.batching
    unsampled = batching.loss_positives != "all" and batching.unsampled == "mask"
    size = load.batch * labels if load.sizes.filtered or unsampled else 0
    return Part(
        "mask of unsampled positives" if unsampled else "mask of filtered pairs",
        size,
        f"{load.batch:,} x {labels:,} x 1 B",
    )


def _blocks(load: Workload, head: HeadLoad) -> Part:
    """Return the scores held at a time: blocks stored between two passes, and four in use."""
    if head.listed:
        return tensor("scores", load.batch, head.width, times=4)
    labels, blocks = load.own(head.pool), BlockPlan.make(load.batch, FLOAT, None, None)
    count = math.ceil(labels / blocks.width)
    stored = min(blocks.keep, count) if any(other.passes() > 1 for other in load.trained_heads) else 0
    return tensor("blocks of scores", load.batch, min(blocks.width, labels), times=stored + 2 + min(2, count))


def _backward(load: Workload) -> tuple[Part, ...]:
    """Through the heads: what they saved, the gradients, and more while normalisation is differentiated."""
    heads = load.trained_heads

    def times(head: HeadLoad) -> int:
        return 1 if not head.settings.normalise else _NORMALISED if load.own(head.pool) <= MANY_ROWS else _IN_BLOCKS

    widest = max(heads, key=lambda head: head.pool * head.dim * times(head))
    note = "normalised" if times(widest) > 1 else ""
    return (
        *_graphs(load),
        *_encoded(load, backward=True),
        _rows("kept by the heads", load, [(head, head.dim * head.cost.saved) for head in heads]),
        _rows("gradients of label vectors", load, [(head, head.label_width) for head in heads]),
        tensor("gradients on their way", load.own(widest.pool), widest.label_width, times=times(widest), note=note),
        tensor("query vectors", load.batch, sum(head.dim for head in heads), times=6),
        _mask(load),
        *_left_over(load),
    )


def _again(load: Workload) -> tuple[Part, ...]:
    """The second round of the gradient cache, or the first backward pass of what fits into a chunk."""
    sides = [(encoder, side) for encoder in load.encoders if encoder.trained for side in load.sides(encoder)]
    if not sides:
        return ()
    chunked = [(encoder, side) for encoder, side in sides if side.texts > load.chunk]

    def in_chunk(item: tuple[EncoderLoad, Side]) -> float:
        return min(item[1].texts, load.chunk) * item[1].items

    encoder, side = max(chunked or sides, key=in_chunk)
    texts = min(side.texts, load.chunk)
    parts: list[Part] = []
    if chunked:
        parts += _graph(load, encoder, f"a chunk of {side.name}", texts, side.items)
        parts.append(tensor(f"gradients of {side.name}", side.texts, encoder.cost.dim))
    parts += _graphs(load)  # what fits into a chunk waits for its turn
    parts += encoder.cost.backward(texts * side.items, texts)
    for other in load.encoders:
        rows, _ = _table_gradient(load, other)
        if rows:
            width = other.cost.table[1]
            if other is encoder:
                features = texts * side.items
                how = f"{features:,.0f} features x {_FEATURE} B"
                parts.append(Part("features by row", features * _FEATURE, how, True, 5))
            parts.append(tensor("gradient of the feature table", rows / 3, width, times=3, note="being added up"))
    return (*parts, _dense_gradients(load))


def _dense_gradients(load: Workload) -> Part:
    weights = sum(encoder.cost.dense for encoder in load.encoders if encoder.trained)
    return Part("gradients of the encoder", weights * FLOAT, "as many as weights", pieces=8)


def _table_gradient(load: Workload, encoder: EncoderLoad) -> tuple[float, float]:
    """Return the rows of gradient held while those of the last chunk are added, and while they are sorted.

    Adding makes a new list as long as both, which is then merged in the order of rows.
    """
    cost, sides = encoder.cost, load.sides(encoder)
    if not cost.table[0] or not encoder.trained or not sides:
        return 0.0, 0.0
    touched = [cost.touched(side.text, side.texts) for side in sides]
    union = sum(touched) - (math.prod(touched) / cost.table[0] if len(touched) > 1 else 0.0)
    alike = len(sides) == 1 or encoder.settings.query_length == encoder.settings.label_length
    if alike and sum(side.texts for side in sides) <= load.chunk:  # all texts are encoded together
        return union, union
    longest = max(sides, key=lambda side: side.texts)
    if longest.texts <= load.chunk:
        return 2 * sum(touched), 2 * union
    last = cost.touched(longest.text, load.chunk)
    return 2 * union + 3 * last, 2 * union + last


def _update(load: Workload) -> tuple[Part, ...]:
    """The optimisers' step: sorted gradients of tables, and rows being updated."""
    parts, tables = [], False
    for encoder in load.encoders:
        _, rows = _table_gradient(load, encoder)
        tables = tables or rows > 0
        note = "as added up, and sorted"
        parts.append(tensor("gradient of the feature table", rows / 2, encoder.cost.table[1], times=2, note=note))
    free = [head for head in load.trained_heads if (head.cost.table or head.cost.shared) and not head.frozen]
    times = 1 if load.all_labels else 2
    widest = max(
        *(encoder.cost.dim if encoder.cost.table[0] and encoder.trained else 0 for encoder in load.encoders),
        *(head.dim for head in load.heads),
    )
    return (
        *parts,
        _dense_gradients(load),
        _rows(
            "gradients of free vectors",
            load,
            [(head, times * head.cost.table * head.cost.table_bytes / FLOAT) for head in free if head.cost.table],
        ),
        *(
            tensor("gradient of shared vectors", min(load.own(head.pool), head.cost.shared), head.dim, times=times)
            for head in free
            if head.cost.shared
        ),
        tensor("rows being updated", UPDATED_ROWS * bool(tables or free), widest, times=3),
    )
