"""An index over the vectors in a table of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from megalabel.errors import DataError
from megalabel.index._approximate import check_settings
from megalabel.index._search import best_first, check_ids, check_search
from megalabel.index._store import read_card, read_kind, write_index
from megalabel.index.engines.table import NAME, Found, LabelTable, Place, check_name
from megalabel.index.hnsw import EF_CONSTRUCTION, EF_SEARCH, LINKS
from megalabel.index.products import products
from megalabel.settings import first_error
from megalabel.types import TopK

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

__all__ = ["ENGINES", "EngineIndex", "all_settings", "new_table"]

_SPARE = 16  # candidates beyond k: an engine rounds differently, and so orders near ties differently
_BATCH = 64  # queries asked at a time: their candidates come with their vectors

ENGINES: dict[str, tuple[str, ...]] = {  # and the settings each takes; the last is the effort of a search
    "pgvector": ("M", "ef_construction", "ef_search"),
    "lancedb": ("nlist", "nprobe"),
}


class _Entry(BaseModel):
    """What a card says of a table; the names are part of queries."""

    model_config = ConfigDict(strict=True, extra="forbid")
    location: dict[str, str]
    table: str = Field(pattern=f"^{NAME.pattern}$")
    column: str = Field(pattern="^v[0-9]{1,3}$")
    model: str
    dims: dict[str, PositiveInt]


def new_table(kind: str, url: str | None, table: str) -> LabelTable:
    """Return a table that may not be there yet: in the PostgreSQL database or LanceDB folder of a URL."""
    return _kind(kind).at(url, check_name(table))


def _kind(kind: str) -> type[LabelTable]:
    if kind == "pgvector":
        from megalabel.index.engines.postgres import PostgresTable

        return PostgresTable
    from megalabel.index.engines.lance import LanceTable

    return LanceTable


def all_settings(kind: str, labels: int, given: Mapping[str, int]) -> dict[str, int]:
    """Return all settings of a kind: those given, and defaults for so many labels.

    >>> all_settings("lancedb", 10_000, {"nprobe": 5})
    {'nlist': 100, 'nprobe': 5}
    """
    if kind == "lancedb":
        nlist = given.get("nlist", max(1, round(labels**0.5)))
        return {"nlist": nlist, "nprobe": given.get("nprobe", max(1, nlist // 16))}
    return {"M": LINKS, "ef_construction": EF_CONSTRUCTION, "ef_search": EF_SEARCH, **given}


class EngineIndex:
    """Inner-product search by PostgreSQL with pgvector, or by LanceDB.

    The engine proposes candidates, whose vectors come with them and are scored again like those of
    :class:`~megalabel.index.ExactIndex`: a label returned by both has the same score bit for bit. Labels that were
    excluded or removed are left out by the engine, before its cut to k. A query that got too few candidates is asked
    again, comparing it with all labels. Nothing of the labels is in the memory of this process.

    Args:
        table: the table.
        column: the vectors to search.
        settings: settings of the approximate index in the engine; 0 for the first one: there is none, every search
            compares with all labels.
    """

    def __init__(self, table: LabelTable, column: str, settings: dict[str, int]) -> None:
        self.table, self.column, self._settings = table, column, dict(settings)
        self._labels: int | None = None  # as many as the table has
        self._hidden = np.empty(0, dtype=np.int64)  # left out by this view only

    @property
    def kind(self) -> str:
        """The kind of engine."""
        return self.table.kind

    def __len__(self) -> int:
        """Return the number of labels, including removed ones: ids never change."""
        if self._labels is None:
            if not self.table.size:
                self.table.check(self.table.exists())
                self.table.note()
            return self.table.size
        return self._labels

    def of(self, labels: int, removed: NDArray[np.int64]) -> Self:
        """Return a view of the first ``labels`` labels, without removed ones, whatever is added meanwhile."""
        view = copy(self)
        view._labels = labels
        view._hidden = np.setdiff1d(removed, self.table.removed)
        return view

    def remove(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> Self:
        """Return a view that never returns these labels; the table stays as it is."""
        view = copy(self)
        view._hidden = np.union1d(self._hidden, check_ids(ids, len(self)))
        return view

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.table.dims[self.column]

    @property
    def effort(self) -> int:
        """Effort of a search (ef_search, nprobe); 0 if every search compares with all labels."""
        build, *_, search = ENGINES[self.kind]
        return self._settings[search] if self._settings[build] else 0

    @effort.setter
    def effort(self, value: int) -> None:
        check_settings(effort=value)
        self._settings[ENGINES[self.kind][-1]] = min(value, self.most_effort)

    @property
    def most_effort(self) -> int:
        """The effort beyond which results no longer change, or the most that the engine allows."""
        return 1_000 if self.kind == "pgvector" else self._settings["nlist"]

    def settings(self) -> dict[str, Any]:
        """Return the settings of build and search, ready for JSON."""
        return dict(self._settings)

    def search(self, vectors: Tensor, k: int, exclude: csr_matrix | None = None) -> TopK:
        """Return k of the best labels of each query vector [Q, d], best first.

        ``exclude`` [Q, L]: its non-zero cells are left out before the cut to k. Rows with fewer than k labels to offer
        end in id -1, score -inf.
        """
        labels = len(self)
        check_search((labels, self.dim), vectors, k, exclude)
        queries = vectors.detach().to(device="cpu", dtype=torch.float32).contiguous()
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        for start in range(0, len(queries), _BATCH):
            part = slice(start, min(len(queries), start + _BATCH))
            without = self._without(part, exclude)
            found = self._propose(queries[part].numpy(), k, labels, without)
            width = min(k, max((len(one.ids) for one in found), default=0))
            if width:
                scores[part, :width], ids[part, :width] = _ranked(queries[part], found, width)
        ids[scores == -np.inf] = -1
        return TopK(ids, scores)

    def _propose(
        self, queries: NDArray[np.float32], k: int, labels: int, without: list[NDArray[np.int64]]
    ) -> list[Found]:
        options: dict[str, Any] = {"limit": labels, "effort": self.effort}
        count = k + _SPARE
        exact = not self.effort
        found = self.table.propose(self.column, queries, count, without=without, exact=exact, **options)
        removed = self.table.removed
        short = [
            row
            for row, one in enumerate(found)
            if not exact and len(one.ids) < min(k, labels - len(np.union1d(removed, without[row])))
        ]
        if short:
            few = [without[row] for row in short]
            again = self.table.propose(self.column, queries[short], count, without=few, exact=True, **options)
            for row, one in zip(short, again, strict=True):
                found[row] = one
        return found

    def _without(self, part: slice, exclude: csr_matrix | None) -> list[NDArray[np.int64]]:
        """Return the ids that each query of a batch leaves out."""
        if exclude is None:
            return [self._hidden] * (part.stop - part.start)
        cells = exclude[part].tocsr()
        rows = np.split(np.arange(cells.nnz), cells.indptr[1:-1])
        return [np.union1d(self._hidden, cells.indices[row][cells.data[row] != 0]) for row in rows]

    def score(self, queries: Tensor, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [Q, C] of candidate labels; undefined for candidate -1."""
        ids, places = np.unique(candidates, return_inverse=True)
        known = ids >= 0
        vectors = np.zeros((len(ids), self.dim), dtype=np.float32)
        vectors[known] = self.table.vectors(self.column, ids[known])
        return products(torch.from_numpy(vectors), queries, places.reshape(candidates.shape))

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write where the table is and how to search it; never how to log in."""
        engine = {
            "location": dict(self.table.place.location), "table": self.table.place.table, "column": self.column,
            "model": self.table.model, "dims": self.table.dims,
        }  # fmt: skip
        card = {"kind": self.kind, "labels": len(self), "dim": self.dim, "settings": self._settings, "engine": engine}
        write_index(folder, None, None, card, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read what :meth:`save` wrote; the engine is asked on first use."""
        card = read_card(folder, read_kind(folder))
        try:
            engine = _Entry.model_validate(card.get("engine"))
        except ValidationError as error:
            what = f"this card names no table of an engine ({first_error(error)})"
            raise DataError(what, path=folder, remedy="build the index again") from None
        known = {"folder"} if card["kind"] == "lancedb" else {"host", "port", "dbname"}
        if set(card["settings"]) != set(ENGINES.get(card["kind"], ())) or set(engine.location) != known:
            raise DataError("this card is not that of an engine", path=folder, remedy="build the index again")
        place = Place(engine.location, engine.table)
        settings = {name: int(value) for name, value in card["settings"].items()}
        table = _kind(card["kind"])(place, engine.model, engine.dims)
        return cls(table, engine.column, settings)


def _ranked(queries: Tensor, found: list[Found], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scores and ids [n, k] of candidates by their exact scores."""
    most = max(len(one.ids) for one in found)
    places = np.full((len(found), most), -1, dtype=np.int64)
    ids = np.full((len(found), most), -1, dtype=np.int64)
    first = 0
    for row, one in enumerate(found):
        places[row, : len(one.ids)] = np.arange(first, first + len(one.ids))
        ids[row, : len(one.ids)] = one.ids
        first += len(one.ids)
    vectors = torch.from_numpy(np.concatenate([one.vectors for one in found]))
    scores, best = best_first(torch.from_numpy(products(vectors, queries, places)), torch.from_numpy(ids), k)
    return scores.numpy(), best.numpy()
