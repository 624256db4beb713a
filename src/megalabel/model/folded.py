"""Labels changed after training put in with the others, as if all had been there from the start."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse

from megalabel.heads._rows import no_cells
from megalabel.heads.linear import Linear
from megalabel.heads.memory import Memory
from megalabel.heads.overlap import Overlap

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.model.rows import Rows
    from megalabel.model.state import State
    from megalabel.training.fitted import Fitted
    from megalabel.training.network import Network

__all__ = ["fold_fitted", "fold_tensors", "head_tensors"]


def head_tensors(network: Network) -> dict[str, Tensor]:
    """Return every parameter outside the encoder once, by name."""
    return {name: value for name, value in network.named_parameters() if not name.startswith("encoder.")}


@torch.no_grad()
def fold_tensors(network: Network, state: State) -> dict[str, Tensor]:
    """Return :func:`head_tensors` with a row for every label of the state in each table and bias."""
    found = {name: value.detach().cpu() for name, value in head_tensors(network).items()}
    if len(state.labels) == state.first:
        return found
    for head in network.heads:
        for name, part in (
            (f"heads.{head}.tower.table", f"free/{head}"),
            (f"heads.{head}.tower.free.table", f"free/{head}"),
            (f"heads.{head}.bias", f"bias/{head}"),
        ):
            if name in found:
                table = found[name]
                grown = torch.cat([table, table.new_zeros((len(state.labels) - len(table), *table.shape[1:]))])
                if len(state.rows):
                    grown[torch.from_numpy(state.rows.ids)] = torch.as_tensor(state.rows.parts[part]).cpu().to(table)
                found[name] = grown
    return found


def fold_fitted(state: State) -> Fitted:
    """Return the fitted heads over every label of the state."""
    if len(state.labels) == state.first and not len(state.rows):
        return state.fitted
    heads = {name: _fold(name, head, state) for name, head in state.fitted.heads.items()}
    return replace(state.fitted, heads=heads)


def _fold(name: str, head: Memory | Linear | Overlap, state: State) -> Memory | Linear | Overlap:
    rows, total = state.rows, len(state.labels)
    if isinstance(head, Memory):
        return _fold_memory(name, head, state)
    found: Any = copy(head)
    found._index = None
    if isinstance(head, Overlap):
        assert head.labels_ is not None
        found.labels_ = _spread(head.labels_, rows.parts.get(f"words/{name}"), rows, total)
    else:
        assert head.weights_ is not None
        found.weights_ = _spread(head.weights_, rows.parts.get(f"weights/{name}"), rows, total)
        found.bias_ = np.concatenate([head.bias_, np.zeros(total - len(head.bias_), dtype=np.float32)])
        if len(rows):
            found.bias_[rows.ids] = rows.parts[f"base/{name}"]
    fold: Linear | Overlap = found
    return fold


def _fold_memory(name: str, memory: Memory, state: State) -> Memory:
    own: NDArray[np.int64] = np.flatnonzero(state.rows.added)
    if len(state.labels) == state.first:
        return memory
    known: Any = memory.vectors()
    if len(own):
        more: Any = state.rows.parts[f"row/{name}"]
        both = [known, more[own]]
        known = sparse.csr_matrix(sparse.vstack(both)) if sparse.issparse(known) else np.concatenate(both)
    again = Memory(nearest=memory.nearest, power=memory.power, common=memory.common)
    return again.fit(known, state.targets(memory, own))


def _spread(known: sparse.csr_matrix, changed: Any, rows: Rows, total: int) -> sparse.csr_matrix:
    """Return a matrix [total, F] with the changed rows in their places; a label of neither has an empty row."""
    empty = no_cells((1, known.shape[1]))
    parts = [known, *([] if changed is None else [changed]), empty]
    stacked = sparse.vstack(parts, format="csr")
    order = np.full(total, stacked.shape[0] - 1)
    order[: known.shape[0]] = np.arange(known.shape[0])
    order[rows.ids] = known.shape[0] + np.arange(len(rows))
    return sparse.csr_matrix(stacked[order])
