"""Labels in LanceDB: a folder, or the URL of an object store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import numpy as np

from megalabel.errors import DataError, EngineError, MissingExtraError, SettingError, WriteError
from megalabel.index.engines.table import FORMAT, Found, LabelRow, LabelTable, NewTable, Place, TableCard, in_blocks
from megalabel.locks import holding

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LanceTable"]

_CARD = b"megalabel"  # key of the card in the schema
_BUSY = 60.0  # seconds that a change of labels waits for another one
_COLUMNS = ("id", "uid", "text", "removed")
_FULL = ("no space left", "file too large", "disk quota")


class LanceTable(LabelTable):
    """One table of an embedded database; each change is one new version of it.

    In a folder, a lock file lets one process at a time change labels. An object store has no such lock: there, change
    labels from one process only.
    """

    kind = "lancedb"
    _table: Any = None
    _seen = (-1, -1)  # version of the table, and the number of its last label change

    @classmethod
    def at(cls, url: str | None, table: str) -> Self:
        """Return a table in a folder, or under the URL of an object store."""
        if url is None:
            raise SettingError(
                "an index of kind lancedb needs a place", remedy="give --url FOLDER, or s3://BUCKET/PATH"
            )
        if "://" not in url:
            return cls(Place({"folder": str(Path(url).resolve())}, table))
        if "@" in urlsplit(url).netloc or urlsplit(url).query:
            remedy = "leave it out, and set the environment variables of the store, such as AWS_ACCESS_KEY_ID"
            raise SettingError("--url holds a login, which must not be written down", remedy=remedy)
        return cls(Place({"folder": url}, table))

    # ------------------------------------------------------------------ the table

    @property
    def folder(self) -> str:
        """The folder or URL of the database."""
        return self.place.location["folder"]

    def _open(self) -> Any:
        """Return the table as it is now."""
        with self.lock, self._reading():
            if self._table is None:
                database = _lancedb().connect(self.folder)
                self._table = _opened(database, self.place.table)
                self.check(None if self._table is None else self._card(self._table))
            before = self._table.version
            self._table.checkout_latest()
            if self._table.version != before:
                self.check(self._card(self._table))
            return self._table

    def _card(self, table: Any) -> TableCard:
        return self.parse_card(_document(table.schema))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            self._table = None
            raise EngineError(f"{self.place} cannot be read ({_reason(error)})", remedy="check the folder") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            self._table, reason = None, _reason(error)
            remedy = "make room, and try again" if any(word in reason.lower() for word in _FULL) else None
            raise WriteError(f"could not write {self.place} ({reason}); nothing was changed", remedy=remedy) from None

    def close(self) -> None:
        """Let go of the table; the next call opens it again."""
        with self.lock:
            self._table, self._seen = None, (-1, -1)

    def exists(self) -> TableCard | None:
        """Return the card of the table, or None."""
        if "://" not in self.folder and not Path(self.folder).is_dir():
            return None
        with self.lock, self._reading():
            table = _opened(_lancedb().connect(self.folder), self.place.table)
            return None if table is None else self._card(table)

    def create(self, new: NewTable) -> None:
        """Write the table as one version; then its indexes, without which every label would be compared."""
        if (card := self.exists()) is None:
            self._write(new, new.sequence, {})
        else:
            with self.changing():
                self.check_last(self.sequence(), new)
                rows = self._open().search().where("changed > 0").select(["id", "changed"]).to_arrow()
                self._write(new, card.base, dict(zip(rows["id"].to_pylist(), rows["changed"].to_pylist(), strict=True)))
        self.model, self.dims = new.model, new.dims
        self.note()

    def _write(self, new: NewTable, base: int, before: Mapping[int, int]) -> None:
        pyarrow = _pyarrow()
        document = {"format": FORMAT, "model": new.model, "base": base, "sequence": new.sequence, "dims": new.dims}
        schema = _schema(new.dims).with_metadata({_CARD: json.dumps(document)})
        changed = new.sequences(before)
        batches = (
            _batch(schema, new.rows[part], changed[part], {name: rows[part] for name, rows in new.vectors.items()})
            for part in in_blocks(len(new.rows))
        )
        self.close()
        with self.lock, self._writing():
            database = _lancedb().connect(self.folder)
            reader = pyarrow.RecordBatchReader.from_batches(schema, batches)
            _index(database.create_table(self.place.table, reader, mode="overwrite"), new)

    def counts(self) -> tuple[int, NDArray[np.int64]]:
        """Return the number of labels and the ids of removed ones."""
        table = self._open()
        with self._reading():
            removed = table.search().where("removed").select(["id"]).to_arrow()["id"].to_numpy()
            return table.count_rows(), np.sort(removed.astype(np.int64))

    # ------------------------------------------------------------------ changes

    def sequence(self) -> int:
        """Return the number of the last label change; rows are looked at only if there is a new version."""
        table = self._open()
        with self.lock, self._reading():
            version = table.version
            if self._seen[0] != version:
                written = self._card(table).sequence
                rows = table.search().where(f"changed > {written}").select(["changed"]).to_arrow()
                self._seen = version, max([written, *rows["changed"].to_pylist()])
            return self._seen[1]

    def changes(self, since: int) -> list[LabelRow]:
        """Return the labels that changed since, as they are now."""
        table = self._open()
        with self._reading():
            rows = table.search().where(f"changed > {since}").select(list(_COLUMNS)).to_arrow()
        return sorted(LabelRow(*row.values()) for row in rows.select(_COLUMNS).to_pylist())

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock file beside the table."""
        with self.lock:
            self._open()
            if "://" in self.folder:
                yield
                return
            lock = Path(self.folder) / f".{self.place.table}.lock"
            busy, remedy = "another process is changing these labels", "try again later"
            with holding(lock, target=str(self.place), busy=busy, remedy=remedy, patience=_BUSY, say=None):
                yield

    def put(self, sequence: int, rows: Sequence[LabelRow], vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Write labels as one version."""
        table = self._open()
        numbers = np.full(len(rows), sequence, dtype=np.int64)
        with self._writing():
            batch = _batch(table.schema, rows, numbers, vectors)
            whole = _pyarrow().Table.from_batches([batch])
            table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(whole)

    def remove(self, sequence: int, ids: Sequence[int]) -> None:
        """Mark labels as removed, as one version."""
        table = self._open()
        with self._writing():
            table.update(where=f"id IN ({_list(ids)})", values={"removed": True, "changed": sequence})

    # ------------------------------------------------------------------ search

    def propose(
        self, column: str, queries: NDArray[np.float32], count: int, *, limit: int,
        without: Sequence[NDArray[np.int64]], effort: int, exact: bool,
    ) -> list[Found]:  # fmt: skip
        """Ask for the labels of each query; queries that leave out the same labels together."""
        table = self._open()
        groups: dict[bytes, list[int]] = {}
        for row, ids in enumerate(without):
            groups.setdefault(ids.tobytes(), []).append(row)
        found: list[Found] = [Found(np.empty(0, dtype=np.int64), queries[:0])] * len(queries)
        for rows in groups.values():
            ids = without[rows[0]]
            where = f"NOT removed AND id < {limit}" + (f" AND id NOT IN ({_list(ids)})" if len(ids) else "")
            with self._reading():
                search = table.search(queries[rows], vector_column_name=column).distance_type("dot")
                search = search.where(where, prefilter=True).limit(count).select(["id", column, "_distance"])
                search = search.bypass_vector_index() if exact else search.nprobes(effort)
                top = search.to_arrow()
            which = top["query_index"].to_numpy() if "query_index" in top.schema.names else np.zeros(len(top), int)
            labels, vectors = top["id"].to_numpy(), _matrix(top[column], queries.shape[1])
            for place, row in enumerate(rows):
                found[row] = Found(labels[which == place].astype(np.int64), vectors[which == place])
        return found

    def vectors(self, column: str, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors [n, d] of labels."""
        vectors = np.zeros((len(ids), self.dims[column]), dtype=np.float32)
        if not len(ids):
            return vectors
        table = self._open()
        with self._reading():
            rows = table.search().where(f"id IN ({_list(ids)})").select(["id", column]).limit(len(ids)).to_arrow()
        vectors[np.searchsorted(ids, rows["id"].to_numpy())] = _matrix(rows[column], vectors.shape[1])
        return vectors


def _lancedb() -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # it would warn that a new table is new
    try:
        import lancedb
    except ImportError:
        raise MissingExtraError("lancedb", extra="lancedb", what="an index of kind lancedb") from None
    return lancedb


def _pyarrow() -> Any:
    _lancedb()
    import pyarrow

    return pyarrow


def _opened(database: Any, name: str) -> Any:
    """Return the table of this name, or None."""
    try:
        return database.open_table(name)
    except ValueError as error:
        if "not found" in str(error):
            return None
        raise


def _document(schema: Any) -> dict[str, Any]:
    try:
        document = json.loads((schema.metadata or {})[_CARD])
    except (KeyError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _schema(dims: Mapping[str, int]) -> Any:
    arrow = _pyarrow()
    types = [arrow.int64(), arrow.string(), arrow.string(), arrow.bool_()]
    fields = [*zip(_COLUMNS, types, strict=True), ("changed", arrow.int64())]
    return arrow.schema(fields + [(name, arrow.list_(arrow.float32(), dim)) for name, dim in dims.items()])


def _batch(
    schema: Any, rows: Sequence[LabelRow], changed: NDArray[np.int64], vectors: Mapping[str, NDArray[np.float32]]
) -> Any:
    arrow = _pyarrow()
    try:
        plain = [arrow.array(column) for column in zip(*rows, strict=True)]
    except UnicodeEncodeError as error:
        raise DataError(f"texts and uids of labels must be valid Unicode ({error.reason})") from None
    wide = [
        arrow.FixedSizeListArray.from_arrays(arrow.array(part.reshape(-1)), part.shape[1]) for part in vectors.values()
    ]
    return arrow.RecordBatch.from_arrays([*plain, arrow.array(changed), *wide], schema=schema)


def _index(table: Any, new: NewTable) -> None:
    from lancedb.index import BTree, IvfFlat

    table.create_index("id", config=BTree())
    table.create_index("changed", config=BTree())
    if new.settings["nlist"]:
        config = IvfFlat(distance_type="dot", num_partitions=new.settings["nlist"])
        for column in new.vectors:
            table.create_index(column, config=config)


def _matrix(column: Any, dim: int) -> NDArray[np.float32]:
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    matrix: NDArray[np.float32] = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, dim)
    return matrix


def _list(ids: Any) -> str:
    return ", ".join(map(str, np.asarray(ids, dtype=np.int64).tolist()))


def _reason(error: Exception) -> str:
    """Return the first sentence of an error, without places in the source of the engine."""
    text = " ".join(str(error).split())
    for mark in (", /", " at /", ", caused"):
        text = text.partition(mark)[0]
    return text[:160] or type(error).__name__
