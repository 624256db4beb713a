"""Indexes for a model, measured on queries of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError, SettingError
from megalabel.index.choose_index import check_choice
from megalabel.training.vectors import fold_queries, query_side

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.index import Choice
    from megalabel.model.model import Model

__all__ = ["build_index"]

_QUERIES = 256  # texts measured with
_K = 10  # labels asked for, where the model does not say


def build_index(
    model: Model, kind: str, heads: str, queries: Sequence[str] | None, settings: Mapping[str, Any]
) -> dict[str, Choice]:
    """Build what labels are searched with, measure it on queries, and return what was found, by head.

    A fused model gets one index for each head of its network, which is what it searches with; a
    model that adds scores gets one over all of them; a head named is searched by itself. Labels
    added or renamed later stand beside the index until it is built again.

    Args:
        model: the model; the index is kept with it.
        kind: exact, hnsw, ivf or auto, as for :func:`~megalabel.index.choose_index`.
        heads: all, or one by name.
        queries: texts to measure with; those of the training where left out and kept.
        settings: of :func:`~megalabel.index.choose_index`: ``k`` (10, or the candidates a fused
            model asks of each head), ``at_least``, ``searches``, ``seed``, and those of the kind.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64"])
    >>> model.build_index("ivf")["all"].recall
    1.0
    """
    if isinstance(queries, str):
        raise SettingError("give a list of queries, not one")
    check_choice(kind, **settings)
    fused = model.fusion is not None
    more = {"k": model.network.recipe.predict.candidates if fused else _K, "seed": 0, **settings}
    more["k"] = min(more["k"], len(model.state.labels))
    wanted = {heads: model.chosen(heads)}
    if fused and heads == "all":
        wanted = {name: {name: 1.0} for name in model.network.heads}
    asked = _query_side(model, queries, more["seed"])
    found = {}
    for name, weights in wanted.items():
        folded = None if asked is None else fold_queries(asked, weights, bias=model._biased(weights))
        found[name] = model.indexes.build(weights, folded, kind, **more)
    return found


def _query_side(model: Model, queries: Sequence[str] | None, seed: int) -> dict[str, Tensor] | None:
    """Return the vectors of some queries by head; None where there are no texts to make them of."""
    if queries is None:
        rows = model.train_rows
        queries = () if rows is None else rows.texts
        if not len(queries):
            return None
    if not len(queries):
        raise DataError("there are no queries to measure with", remedy="leave them out, or give some")
    chosen = np.arange(len(queries))
    if len(queries) > _QUERIES:
        chosen = np.sort(np.random.default_rng(seed).choice(len(queries), _QUERIES, replace=False))
    model.network.eval()
    return query_side(model.network, model._tokenise([queries[place] for place in chosen.tolist()]))
