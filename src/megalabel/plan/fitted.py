"""Heads that train no encoder: n-grams, and classifiers on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megalabel.plan.result import Part

if TYPE_CHECKING:
    from megalabel.plan.case import Case

__all__ = ["fitted_parts", "fitting_parts"]

# Of megalabel.encoders.SparseEncoder: columns by kind; and of megalabel.training: words from which on only words count.
COLUMNS = {"words": 2**18, "bigrams": 2**20, "characters": 2**20}
SHORT = 20
_COLUMN = 36  # bytes a column: its weight, and where it starts in two inverted indexes
_CELL = 24  # bytes an n-gram of a row: the row, the unit row and the column of the inverted index
_WEIGHT = 16  # bytes a weight of a label, by rows and by columns
_POINTS, _LEFT = 10, 0.6  # points that bring a label new n-grams, and the share of weights that pruning leaves
_NEGATIVE = 48  # bytes a hard negative, which six matrices hold


def fitted_parts(case: Case) -> tuple[Part, ...]:
    """Return what the fitted heads hold, in main memory; rough, since texts differ in how many n-grams they share."""
    heads = [head for head in case.recipe.fitted_heads.values() if head.reads_ngrams]
    if not heads:
        return ()
    options = case.recipe.ngrams
    sizes = {name: int(options[name]) if isinstance(options.get(name), int) else size for name, size in COLUMNS.items()}  # type: ignore[arg-type]
    if case.sizes.query.words > SHORT and "characters" not in options:
        sizes["characters"] = 0
    found = case.sizes.query.features()
    each = sum(found[kind] for kind, size in sizes.items() if size)
    rows = case.sizes.points + case.sizes.labels * any(getattr(head, "labels", "none") != "none" for head in heads)
    columns = sum(sizes.values())
    parts = [
        Part("columns of n-grams", columns * _COLUMN, f"{columns:,} x {_COLUMN} B", host=True),
        Part("n-grams of rows", rows * each * _CELL, f"{rows:,} rows x {each:.0f} x {_CELL} B", host=True, pieces=3),
    ]
    if any(head.kind == "linear" for head in heads):
        seen = min(case.sizes.pairs / case.sizes.labels, _POINTS)
        weights = case.sizes.labels * seen * each * _LEFT
        parts.append(
            Part("weights of n-grams", weights * _WEIGHT, f"{weights:,.0f} x {_WEIGHT} B", host=True, pieces=2)
        )
    return tuple(parts)


def fitting_parts(case: Case) -> tuple[Part, ...]:
    """Return the same and what comes and goes while they are fitted."""
    mined = max((getattr(head, "mined", 0) for head in case.recipe.fitted_heads.values()), default=0)
    rows = case.sizes.points
    lists = Part("negatives", rows * mined * _NEGATIVE, f"{rows:,} rows x {mined} x {_NEGATIVE} B", host=True, pieces=6)
    return (*fitted_parts(case), lists)
