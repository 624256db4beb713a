"""Labels in PostgreSQL, searched by pgvector."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from megalabel.errors import DataError, EngineError, SettingError, WriteError
from megalabel.index.engines._login import GONE, LOGIN, connect, driver, first_line, parse
from megalabel.index.engines.table import FORMAT, Found, LabelRow, LabelTable, NewTable, Place, TableCard, in_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PostgresTable"]

_TABLES = "megalabel_tables"  # the cards of all tables
_OLDEST = (0, 8)  # of pgvector: it goes on when a filter leaves too few
_BUSY = 60  # seconds that a change of labels waits for another one

Result = TypeVar("Result")


class PostgresTable(LabelTable):
    """A table with one column of vectors for each index, and a row about it in ``megalabel_tables``.

    The connection is made on first use, and again when it was lost. How to log in comes from the environment:
    ``MEGALABEL_PG_URL``, or the variables and files of libpq.
    """

    kind = "pgvector"
    _connection: Any = None
    _in_change = False

    @classmethod
    def at(cls, url: str | None, table: str) -> Self:
        """Return a table in the database of ``url``, or of the environment, after connecting there."""
        given = parse(url or "")
        if "password" in given:
            what = "--url holds a password, which the shell's history and other users of this machine can see"
            raise SettingError(what, remedy=f"leave it out, and {LOGIN}")
        with connect({}, given) as connection:
            info = connection.info
            location = {"host": info.host, "port": str(info.port), "dbname": info.dbname}
        return cls(Place(location, table))

    # ------------------------------------------------------------------ connection

    def _connect(self) -> Any:
        connection = connect(self.place.location)
        try:
            _register(connection)
        except driver().Error as error:
            connection.close()
            raise self._failed(error) from None
        return connection

    def _call(self, work: Callable[[Any], Result]) -> Result:
        """Return what ``work`` does with a connection; one that was lost since the last call is made again."""
        psycopg = driver()
        with self.lock:
            known = self._connection is not None
            if not known:
                self._connection = self._connect()
            try:
                return work(self._connection)
            except psycopg.Error as error:
                if not self._connection.broken and not self._connection.closed:
                    raise self._failed(error) from None
                self.close()
                if not known or self._in_change:
                    raise self._failed(error) from None
            return self._call(work)

    def _failed(self, error: Any) -> Exception:
        """Return our error for one of the database: one line, without anything secret."""
        psycopg, where = driver(), self.place
        code = error.sqlstate or ""
        reason = first_line(error)
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
            return DataError(f"there is no table {where}, or it is of another kind", remedy="build the index again")
        if isinstance(error, psycopg.errors.InsufficientPrivilege | psycopg.errors.InvalidSchemaName):
            return DataError(f"{where}: {reason}", remedy="ask who runs the database for this right")
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return WriteError(f"another process is changing the labels of {where}", remedy="try again later")
        if code.startswith("53"):  # disk full, out of memory, too many connections
            return WriteError(f"{where}: {reason}; nothing was changed", remedy="make room, and try again")
        if isinstance(error, psycopg.errors.ProgramLimitExceeded):
            return DataError(f"{where}: {reason}", remedy="--set M=0 compares every search with all labels")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            remedy = "it goes on when the database is back"
            if self._in_change:
                remedy = f"the change was made whole or not at all: look before you repeat it; {remedy}"
            return EngineError(GONE.format(" ".join(where.location.values())), remedy=remedy)
        return DataError(f"{where}: {reason}")

    def close(self) -> None:
        """Close the connection; the next call makes another one."""
        with self.lock:
            if self._connection is not None:
                with suppress(Exception):
                    self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------ the whole table

    def exists(self) -> TableCard | None:
        """Return the card of the table, or None."""

        def read(connection: Any) -> Any:
            if connection.execute("SELECT to_regclass(%s)", [_TABLES]).fetchone()[0] is None:
                return None
            query = f"SELECT format, model, base, sequence, dims FROM {_TABLES} WHERE name = %s"
            return connection.execute(query, [self.place.table]).fetchone()

        row = self._call(read)
        if row is None:
            return None
        return self.parse_card(dict(zip(("format", "model", "base", "sequence", "dims"), row, strict=True)))

    def create(self, new: NewTable) -> None:
        """Write the table in one transaction; others search the older one until it ends."""
        name, fresh = self.place.table, f"{self.place.table}_new"

        def write(connection: Any) -> None:
            with connection.transaction():
                _extension(connection, self.place)
                connection.execute(_SCHEMA)
                before, base = {}, new.sequence
                query = f"SELECT base, sequence FROM {_TABLES} WHERE name = %s FOR UPDATE"
                card = connection.execute(query, [name]).fetchone()
                if card is not None:
                    self.check_last(card[1], new)
                    before = dict(connection.execute(f"SELECT id, changed FROM {name} WHERE changed > 0").fetchall())
                    base = card[0]
                columns = "".join(f", {column} vector({dim}) NOT NULL" for column, dim in new.dims.items())
                connection.execute(f"DROP TABLE IF EXISTS {fresh}")
                connection.execute(f"CREATE TABLE {fresh} ({_COLUMNS}{columns})")
                _register(connection)
                _copy(connection, fresh, new, before)
                connection.execute(f"DROP TABLE IF EXISTS {name}")
                connection.execute(f"ALTER TABLE {fresh} RENAME TO {name}")
                _indexes(connection, name, new)
                connection.execute(
                    f"INSERT INTO {_TABLES} (name, format, model, base, sequence, dims) VALUES (%s, %s, %s, %s, %s, %s)"
                    " ON CONFLICT (name) DO UPDATE SET format = excluded.format, model = excluded.model,"
                    " base = excluded.base, sequence = excluded.sequence, dims = excluded.dims",
                    [name, FORMAT, new.model, base, new.sequence, json.dumps(new.dims)],
                )

        try:
            self._call(write)
            self._call(lambda connection: connection.execute(f"ANALYZE {name}"))
        except UnicodeEncodeError as error:
            raise DataError(f"texts and uids of labels must be valid Unicode ({error.reason})") from None
        self.model, self.dims = new.model, new.dims
        self.note()

    def counts(self) -> tuple[int, NDArray[np.int64]]:
        """Return the number of labels and the ids of removed ones."""
        name = self.place.table

        def read(connection: Any) -> tuple[int, list[int]]:
            count = connection.execute(f"SELECT coalesce(max(id) + 1, 0) FROM {name}").fetchone()[0]
            rows = connection.execute(f"SELECT id FROM {name} WHERE removed AND id < %s ORDER BY id", [count])
            return count, [label for (label,) in rows.fetchall()]

        count, removed = self._call(read)
        return count, np.array(removed, dtype=np.int64)

    # ------------------------------------------------------------------ changes

    def sequence(self) -> int:
        """Return the number of the last label change."""
        query = f"SELECT sequence, model FROM {_TABLES} WHERE name = %s"
        row = self._call(lambda connection: connection.execute(query, [self.place.table]).fetchone())
        if row is None or row[1] != self.model:
            self.check(self.exists())
        return int(row[0])

    def changes(self, since: int) -> list[LabelRow]:
        """Return the labels that changed since, as they are now."""
        query = f"SELECT id, uid, text, removed FROM {self.place.table} WHERE changed > %s ORDER BY id"
        rows = self._call(lambda connection: connection.execute(query, [since]).fetchall())
        return [LabelRow(*row) for row in rows]

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the row about the table; what is written ends the transaction, so that it is there before we go on."""
        psycopg = driver()
        with self.lock:
            self.sequence()  # connects again where that is needed, and checks whose labels these are
            connection = self._connection
            query = f"SELECT sequence FROM {_TABLES} WHERE name = %s FOR UPDATE"
            try:
                connection.execute("BEGIN")
                connection.execute(f"SET LOCAL lock_timeout = '{_BUSY}s'")
                connection.execute(query, [self.place.table])
                self._in_change = True
                yield
            except psycopg.Error as error:
                raise self._failed(error) from None
            finally:
                self._in_change = False
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")  # nothing, if the change was committed
                if connection.broken or connection.closed:
                    self.close()

    def put(self, sequence: int, rows: Sequence[LabelRow], vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Write labels, and end the transaction."""
        names = ("uid", "text", "removed", "changed", *vectors)
        places = ", ".join(["%s"] * (1 + len(names)))
        update = ", ".join(f"{name} = excluded.{name}" for name in names)
        query = (
            f"INSERT INTO {self.place.table} (id, {', '.join(names)}) VALUES ({places})"
            f" ON CONFLICT (id) DO UPDATE SET {update}"
        )
        values = [
            [*row[:3], row.removed, sequence, *(_Vector(part[place]) for part in vectors.values())]
            for place, row in enumerate(rows)
        ]

        def write(connection: Any) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(query, values)
            self._end(connection, sequence)

        try:
            self._call(write)
        except UnicodeEncodeError as error:
            raise DataError(f"texts and uids of labels must be valid Unicode ({error.reason})") from None

    def remove(self, sequence: int, ids: Sequence[int]) -> None:
        """Mark labels as removed, and end the transaction."""
        query = f"UPDATE {self.place.table} SET removed = true, changed = %s WHERE id = ANY(%s)"

        def write(connection: Any) -> None:
            connection.execute(query, [sequence, list(ids)])
            self._end(connection, sequence)

        self._call(write)

    def _end(self, connection: Any, sequence: int) -> None:
        connection.execute(f"UPDATE {_TABLES} SET sequence = %s WHERE name = %s", [sequence, self.place.table])
        connection.execute("COMMIT")

    # ------------------------------------------------------------------ search

    def propose(
        self, column: str, queries: NDArray[np.float32], count: int, *, limit: int,
        without: Sequence[NDArray[np.int64]], effort: int, exact: bool,
    ) -> list[Found]:  # fmt: skip
        """Ask for the labels of each query, all in one round trip."""
        order = ", id" if exact else ""  # a second key would keep the graph from being used
        query = (
            f"SELECT id, {column} FROM {self.place.table} WHERE NOT removed AND id < %s AND id <> ALL(%s)"
            f" ORDER BY {column} <#> %s{order} LIMIT %s"
        )
        settings = (
            "SELECT set_config('enable_indexscan', 'off', true)"
            if exact
            else f"SELECT set_config('hnsw.ef_search', '{max(1, min(1000, max(effort, count)))}', true),"
            " set_config('hnsw.iterative_scan', 'strict_order', true), set_config('enable_seqscan', 'off', true)"
        )

        def ask(connection: Any) -> list[Any]:
            with connection.pipeline(), connection.transaction():
                connection.execute(settings)
                cursors = [
                    connection.cursor(binary=True).execute(query, [limit, ids.tolist(), _Vector(vector), count])
                    for vector, ids in zip(queries, without, strict=True)
                ]
                return [cursor.fetchall() for cursor in cursors]

        return [_found(rows, queries.shape[1]) for rows in self._call(ask)]

    def vectors(self, column: str, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors [n, d] of labels."""
        query = f"SELECT id, {column} FROM {self.place.table} WHERE id = ANY(%s)"

        def read(connection: Any) -> Any:
            return connection.cursor(binary=True).execute(query, [ids.tolist()]).fetchall()

        found = _found(self._call(read), self.dims[column])
        vectors = np.zeros((len(ids), self.dims[column]), dtype=np.float32)
        vectors[np.searchsorted(ids, found.ids)] = found.vectors
        return vectors


_COLUMNS = (
    "id bigint PRIMARY KEY, uid text NOT NULL, text text NOT NULL, removed boolean NOT NULL, changed bigint NOT NULL"
)
_SCHEMA = (
    f"CREATE TABLE IF NOT EXISTS {_TABLES} (name text PRIMARY KEY, format int NOT NULL, model text NOT NULL,"
    " base bigint NOT NULL, sequence bigint NOT NULL, dims jsonb NOT NULL)"
)


class _Vector:
    """A vector as pgvector sends and receives it: its length, and big-endian numbers."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self.content = len(values).to_bytes(2, "big") + b"\0\0" + values.astype(">f4").tobytes()


def _register(connection: Any) -> None:
    """Teach a connection to send vectors, if the extension is there."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format
    from psycopg.types import TypeInfo

    info = TypeInfo.fetch(connection, "vector")
    if info is None:
        return

    class VectorDumper(Dumper):  # type: ignore[misc]
        format = Format.BINARY
        oid = info.oid

        def dump(self, obj: _Vector) -> bytes:
            return obj.content

    info.register(connection)
    connection.adapters.register_dumper(_Vector, VectorDumper)


def _extension(connection: Any, place: Place) -> None:
    """Make sure that the database has pgvector, recent enough."""
    psycopg = driver()
    query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    row = connection.execute(query).fetchone()
    if row is None:
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION vector")
        except psycopg.errors.InsufficientPrivilege:
            what = f"{place}: pgvector is not switched on in this database, and this user may not do it"
            raise DataError(what, remedy="ask who runs it for: CREATE EXTENSION vector") from None
        except psycopg.Error:
            what = f"{place}: this server has no pgvector extension"
            raise DataError(what, remedy="install pgvector on the server") from None
        row = connection.execute(query).fetchone()
    if tuple(int(part) for part in row[0].split(".")[:2]) < _OLDEST:
        what = f"{place}: this server has pgvector {row[0]}, {'.'.join(map(str, _OLDEST))} is needed"
        raise DataError(what, remedy="update it, then ALTER EXTENSION vector UPDATE")


def _copy(connection: Any, name: str, new: NewTable, before: Mapping[int, int]) -> None:
    """Write all labels."""
    changed = new.sequences(before).tolist()
    query = f"COPY {name} (id, uid, text, removed, changed, {', '.join(new.vectors)}) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(["int8", "text", "text", "bool", "int8", *["vector"] * len(new.vectors)])
        for part in in_blocks(len(new.rows)):
            for place in range(part.start, part.stop):
                row = new.rows[place]
                vectors = [_Vector(rows[place]) for rows in new.vectors.values()]
                copy.write_row([row.id, row.uid, row.text, row.removed, changed[place], *vectors])


def _indexes(connection: Any, name: str, new: NewTable) -> None:
    connection.execute(f"CREATE INDEX ON {name} (changed) WHERE changed > 0")
    connection.execute(f"CREATE INDEX ON {name} (id) WHERE removed")
    if new.settings["M"]:
        build = f"m = {new.settings['M']}, ef_construction = {new.settings['ef_construction']}"
        for column in new.vectors:
            connection.execute(
                f"CREATE INDEX ON {name} USING hnsw ({column} vector_ip_ops) WITH ({build}) WHERE NOT removed"
            )


def _found(rows: Sequence[tuple[int, bytes]], dim: int) -> Found:
    """Return ids and vectors of rows."""
    ids = np.array([label for label, _ in rows], dtype=np.int64)
    content = b"".join(vector[4:] for _, vector in rows)
    return Found(ids, np.frombuffer(content, dtype=">f4").astype(np.float32).reshape(len(rows), dim))
