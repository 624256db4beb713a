"""What needs no engine: a card that names one is checked before any of it is used."""

import json

import pytest

from megalabel.errors import DataError
from megalabel.index import EngineIndex, load_index
from megalabel.index._store import _seal

ENTRY = {
    "location": {"host": "127.0.0.1", "port": "1", "dbname": "labels"}, "table": "labels", "column": "v0",
    "model": "0a", "dims": {"v0": 4},
}  # fmt: skip


def card(folder, kind="pgvector", settings=None, **engine):
    settings = settings or {"M": 16, "ef_construction": 100, "ef_search": 64}
    document = {"format": 2, "kind": kind, "labels": 3, "dim": 4, "settings": settings, "files": {}}
    document["engine"] = ENTRY | engine
    (folder / "index.json").write_text(json.dumps({**document, "seal": _seal(document)}))
    return folder


def test_a_card_is_read_without_asking_the_engine(tmp_path):
    index = load_index(card(tmp_path))
    assert isinstance(index, EngineIndex)
    assert (index.kind, index.effort, index.dim, index.most_effort) == ("pgvector", 64, 4, 1000)
    index.effort = 5_000
    assert index.effort == 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "labels; DROP TABLE labels"}, {"table": "Labels"}, {"column": "v0, uid"}, {"dims": {"v0": -1}},
        {"location": {"host": "h", "port": "1", "dbname": "d", "password": "x"}}, {"location": {"folder": "x"}},
        {"location": None}, {"more": 1}, {"settings": {"nlist": 3}}, {"kind": "lancedb"},
    ],
)  # fmt: skip
def test_a_card_with_other_names_is_refused(tmp_path, wrong):
    with pytest.raises(DataError, match="build the index again"):
        load_index(card(tmp_path, **wrong))
