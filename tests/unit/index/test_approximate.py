"""The contract of every approximate index: that of exact search, except for missed labels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError, SettingError, WriteError
from megalabel.index import BeamIndex, ExactIndex, HnswIndex, IvfIndex, load_index, recall
from megalabel.types import Index

GRAPH = {"M": 8, "ef_construction": 40, "ef_search": 40}
BUILD = {
    "hnsw": lambda vectors, **more: HnswIndex.build(vectors, **{**GRAPH, **more}),
    "ivf": IvfIndex.build,
    "pq": lambda vectors, **more: IvfIndex.build(vectors, **{"pq": 8, **more}),
    "beam": lambda vectors, **more: BeamIndex.build(vectors, **{"leaf": 10, "branches": 4, "beam": 30, **more}),
}
KINDS = pytest.mark.parametrize("kind", BUILD)


@pytest.fixture(scope="module")
def world(make):
    vectors, queries = make(2_500, 24, 60, lengths=0.2)
    return vectors, queries, {kind: build(vectors) for kind, build in BUILD.items()}


@KINDS
def test_scores_and_order_are_those_of_exact_search(world, kind):
    vectors, queries, indexes = world
    index, exact = indexes[kind], ExactIndex(vectors)
    assert isinstance(index, Index) and len(index) == 2_500
    top, every = index.search(queries, 20), exact.search(queries, 2_500)
    for row in range(len(queries)):
        place = {label: at for at, label in enumerate(every.ids[row].tolist())}
        at = [place[label] for label in top.ids[row].tolist()]
        assert at == sorted(set(at))  # each label once, in the order of exact search
        np.testing.assert_array_equal(top.scores[row], every.scores[row, at])  # to the bit
    assert recall(index, exact, queries, 10) > 0.95


@KINDS
@pytest.mark.parametrize("lengths", [0.0, 0.5])
def test_recall_on_vectors_of_any_length(make, kind, lengths):
    vectors, queries = make(3_000, 32, 100, lengths=lengths)
    index = BUILD[kind](vectors)
    assert 2 * index._scored(index._candidates(10) + 4) < len(index)  # it is not searched exactly
    assert recall(index, ExactIndex(vectors), queries, 10) > 0.9


@KINDS
def test_excluded_pairs_are_left_out_before_the_cut(world, kind):
    vectors, queries, indexes = world
    best = ExactIndex(vectors).search(queries, 200).ids
    exclude = sparse.lil_matrix((len(queries), len(vectors)))
    for row in range(len(queries)):  # the best 0, 3, 6, ... labels of a row
        exclude[row, best[row, : 3 * row]] = 1
    exclude[0, 5] = 1
    exclude = exclude.tocsr()
    exclude.data[0] = 0  # a stored zero excludes nothing
    top, expected = indexes[kind].search(queries, 10, exclude), ExactIndex(vectors).search(queries, 10, exclude)
    assert (top.ids >= 0).all()
    assert all(exclude[row, label] == 0 for row, ids in enumerate(top.ids) for label in ids)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(top.ids, expected.ids, strict=True)]) > 0.9


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(BUILD)), st.integers(1, 60), st.integers(1, 5), st.integers(1, 80), st.booleans(),
       st.integers(0, 1_000))  # fmt: skip
def test_few_labels_are_searched_exactly(kind, labels, queries, k, ties, seed):
    generator = torch.Generator().manual_seed(seed)
    vectors, asked = torch.randn(labels, 4, generator=generator), torch.randn(queries, 4, generator=generator)
    if ties:
        vectors, asked = vectors.round(), asked.round()
    exclude = sparse.random(queries, labels, density=0.3, format="csr", rng=np.random.default_rng(seed))
    top, expected = BUILD[kind](vectors).search(asked, k, exclude), ExactIndex(vectors).search(asked, k, exclude)
    np.testing.assert_array_equal(top.ids, expected.ids)
    np.testing.assert_array_equal(top.scores, expected.scores)


@KINDS
def test_rows_with_too_few_proposals_are_filled_up(world, kind):
    _, queries, indexes = world
    index = indexes[kind]
    before, index.effort = index.effort, 1
    top = index.search(queries, 100)
    index.effort = before
    assert (top.ids >= 0).all()
    assert (np.diff(top.scores, axis=1) <= 0).all()


def test_rows_with_few_candidates_are_searched_exactly(make, monkeypatch):
    vectors, queries = make(500, 8, 5)
    index = HnswIndex.build(vectors, M=4, ef_search=30)
    monkeypatch.setattr(index, "_propose", lambda asked, count: np.full((len(asked), count), -1))
    np.testing.assert_array_equal(index.search(queries, 7).ids, ExactIndex(vectors).search(queries, 7).ids)


@KINDS
def test_equal_vectors_come_in_the_order_of_ids(kind):
    vectors = torch.eye(8).repeat(100, 1)
    top = BUILD[kind](vectors).search(torch.eye(8)[:1], 120)
    assert top.scores[0, :100].tolist() == [1.0] * 100
    assert top.ids[0, :100].tolist() == list(range(0, 800, 8))


@KINDS
def test_one_vector_for_all_labels(kind):
    top = BUILD[kind](torch.ones(1_500, 8)).search(torch.ones(1, 8), 3)
    assert top.scores.tolist() == [[8.0] * 3]
    assert BUILD[kind](torch.zeros(1_500, 8)).search(torch.ones(1, 8), 3).scores.tolist() == [[0.0] * 3]


@KINDS
def test_same_seed_same_index(make, kind, tmp_path):
    vectors, _ = make(1_500, 16, 1)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        BUILD[kind](vectors, seed=seed).save(tmp_path / name)
    files = [(tmp_path / name / "index.faiss").read_bytes() for name in "abc"]
    assert files[0] == files[1] != files[2]


@KINDS
def test_results_do_not_depend_on_the_batch(world, kind):
    _, queries, indexes = world
    exclude = sparse.random(len(queries), 2_500, density=0.01, format="csr", rng=np.random.default_rng(0))
    top = indexes[kind].search(queries, 10)
    alone = [indexes[kind].search(queries[row : row + 1], 10).ids[0] for row in range(10)]
    np.testing.assert_array_equal(top.ids[:10], alone)
    again = indexes[kind].search(queries, 10, exclude), indexes[kind].search(queries, 10, exclude)
    np.testing.assert_array_equal(again[0].ids, again[1].ids)


@KINDS
def test_a_loaded_index_gives_the_same_results_and_is_mapped(world, kind, tmp_path):
    _, queries, indexes = world
    indexes[kind].save(tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    expected, top = indexes[kind].search(queries, 10), loaded.search(queries, 10)
    np.testing.assert_array_equal(top.ids, expected.ids)
    np.testing.assert_array_equal(top.scores, expected.scores)
    assert loaded.settings() == indexes[kind].settings()
    assert type(loaded).load(tmp_path / "index").settings() == loaded.settings()
    torch.testing.assert_close(loaded.vectors, indexes[kind].vectors, rtol=0, atol=0)
    with pytest.raises(WriteError, match="not empty"):
        loaded.save(tmp_path / "index")
    loaded.save(tmp_path / "index", overwrite=True)
    assert load_index(tmp_path / "index").search(queries, 10).ids.tolist() == expected.ids.tolist()


@KINDS
def test_removed_labels_are_left_out_before_the_cut(world, kind, tmp_path):
    vectors, queries, indexes = world
    index, exact = indexes[kind], ExactIndex(vectors)
    ranked = exact.search(queries, 25).ids
    best = np.unique(ranked[:, :15])
    fewer = index.remove(best[:-1]).remove(best[-1:])
    assert fewer.removed.tolist() == best.tolist()
    top = fewer.search(queries, 10)
    assert (top.ids >= 0).all() and not np.isin(top.ids, best).any()
    pairs = zip(ranked[:, 15:], index.search(queries, 25).ids, strict=True)
    after = np.mean([np.isin(expected, got).mean() for expected, got in pairs])  # of the places behind those removed
    assert recall(fewer, exact.remove(best), queries, 10) > after - 0.05
    assert np.isin(index.search(queries, 10).ids, best).mean() > 0.9  # the first one finds them as before
    fewer.save(tmp_path / "index")
    again = load_index(tmp_path / "index").search(queries, 10)
    np.testing.assert_array_equal(again.ids, top.ids)
    with pytest.raises(DataError, match="0 to 2,499"):
        index.remove([2_500])


@KINDS
def test_all_but_a_few_removed(world, kind):
    _, queries, indexes = world
    few = indexes[kind].remove(np.arange(3, 2_500))
    assert sorted(few.search(queries[:1], 5).ids[0].tolist()) == [-1, -1, 0, 1, 2]


@KINDS
def test_labels_with_much_in_common_are_found(make, kind, tmp_path):
    vectors, queries = make(3_000, 24, 100)
    generator = torch.Generator().manual_seed(0)
    bias = -7 + 0.3 * torch.randn(3_000, 1, generator=generator)  # as the last column of a head with a bias
    vectors, queries = torch.cat([vectors, bias], dim=1), torch.cat([10 * queries, torch.ones(100, 1)], dim=1)
    index = BUILD[kind](vectors)
    assert recall(index, ExactIndex(vectors), queries, 10) > 0.9
    index.save(tmp_path / "index")
    again = load_index(tmp_path / "index")
    torch.testing.assert_close(again.vectors, vectors, rtol=0, atol=0)
    np.testing.assert_array_equal(again.search(queries, 10).ids, index.search(queries, 10).ids)


@KINDS
def test_vectors_outlive_the_index(make, kind):
    vectors, _ = make(500, 8, 1)
    held = BUILD[kind](vectors).vectors
    torch.testing.assert_close(held, vectors, rtol=0, atol=0)


@KINDS
@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda build: build(torch.empty(0, 4)), DataError, "at least one row"),
        (lambda build: build(torch.tensor([[1.0, torch.nan]])), DataError, "NaN"),
        (lambda build: build(torch.eye(2), seed=-1), SettingError, "seed"),
        (lambda build: build(torch.eye(2)).search(torch.eye(3), 1), DataError, r"\[Q, 2\]"),
        (lambda build: build(torch.eye(2)).search(torch.eye(2), 0), SettingError, "k must"),
        (lambda build: build(torch.eye(2)).search(torch.full((1, 2), torch.inf), 1), DataError, "infinity"),
        (lambda build: build(torch.eye(2)).search(torch.eye(2), 1, sparse.csr_matrix((1, 2))), DataError, "2 x 2"),
        (lambda build: setattr(build(torch.eye(2)), "effort", 0), SettingError, "at least 1"),
    ],
)
def test_bad_input(kind, ask, error, words):
    with pytest.raises(error, match=words):
        ask(BUILD[kind])


@KINDS
def test_no_queries(kind):
    assert BUILD[kind](torch.eye(2)).search(torch.empty(0, 2), 3).ids.shape == (0, 3)
