"""The contract of every order and every pool builder."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.batching import (
    All,
    ByLabel,
    Clustered,
    Mined,
    One,
    PoolBuilder,
    Shuffled,
    Some,
    Uniform,
    balanced_clusters,
    generator,
)
from megalabel.losses import BCE, DecoupledSoftmax, Softmax

ROWS, LABELS = 30, 18
PICKERS = [One(), Some(2), Some(3), Some(3, replacement=True), All()]


def relevance(rng, rows=ROWS, labels=LABELS):
    """Graded relevance with empty rows and empty labels."""
    dense = (rng.random((rows, labels)) < rng.choice([0.05, 0.2, 0.4])) * rng.choice([0.25, 0.5, 1.0], (rows, labels))
    return sparse.csr_matrix(dense.astype(np.float32))


def orders(rng, batch_size, seed):
    targets = relevance(rng)
    vectors = torch.from_numpy(rng.standard_normal((ROWS, 4))).float()
    size = int(rng.integers(1, ROWS + 1))
    return {
        "shuffled": (Shuffled(np.arange(ROWS), batch_size, seed), np.arange(ROWS)),
        "clustered": (
            Clustered(balanced_clusters(vectors, size, seed=seed), batch_size, seed),
            np.arange(ROWS),
        ),
        "by label": (ByLabel(targets, batch_size, seed, replacement=False), np.unique(targets.indices)),
    }


def named(batch):
    """The rows of a batch, or the labels of a batch of labels."""
    return batch[:, 1] if batch.ndim == 2 else batch


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, ROWS + 5), st.integers(0, 4))
def test_every_row_or_label_comes_exactly_once_per_epoch(seed, batch_size, epoch):
    for order, expected in orders(np.random.default_rng(seed), batch_size, seed).values():
        batches = order.batches(epoch)
        assert all(0 < len(batch) <= batch_size and batch.dtype == np.int64 for batch in batches)
        assert np.array_equal(np.sort(named(np.concatenate(batches))), expected)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, ROWS), st.integers(0, 4))
def test_same_seed_and_epoch_same_batches_others_differ(seed, batch_size, epoch):
    for name in ("shuffled", "clustered", "by label"):
        order, again, other = (orders(np.random.default_rng(seed), batch_size, number)[name][0] for number in (1, 1, 2))
        first, second = order.batches(epoch), again.batches(epoch)
        assert len(first) == len(second)
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        order.batches(epoch + 1)  # what was asked before has no influence
        assert np.array_equal(np.concatenate(order.batches(epoch)), np.concatenate(first))
        flat = np.concatenate(first)
        assert not np.array_equal(flat, np.concatenate(order.batches(epoch + 1)))
        assert name == "clustered" or not np.array_equal(flat, np.concatenate(other.batches(epoch)))


@given(st.integers(0, 10**6), st.integers(1, ROWS + 5), st.integers(0, 4))
def test_batches_are_even_and_no_more_than_needed(seed, batch_size, epoch):
    for order, expected in orders(np.random.default_rng(seed), batch_size, seed).values():
        sizes = [len(batch) for batch in order.batches(epoch)]
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) == -(-len(expected) // batch_size)


@st.composite
def problems(draw):
    """A builder with any mixture of settings, and rows to build a batch of."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    targets = relevance(rng)
    filtered = np.argwhere(rng.random((ROWS, LABELS)) < rng.choice([0.0, 0.1]))
    lists = np.full((ROWS, 6), -1, dtype=np.int32)
    for row in range(ROWS):
        free = rng.permutation(np.flatnonzero(targets[[row]].toarray()[0] == 0))[: rng.integers(0, 7)]
        lists[row, : len(free)] = free
    sources = draw(st.sampled_from([[], [Mined(lists, 2)], [Uniform(4)], [Mined(lists, 3), Uniform(2)]]))
    cap = draw(st.sampled_from([None, 1, 5, 12, 40]))
    builder = PoolBuilder(
        targets,
        filtered,
        positives=draw(st.sampled_from(PICKERS)),
        negatives=sources,
        cap=cap,
        fill=draw(st.sampled_from([None, "positives"])) if cap else None,
        all_labels=draw(st.booleans()),
        keep_empty=draw(st.booleans()),
    )
    rows = rng.integers(0, ROWS, draw(st.integers(0, 12)))  # rows may come twice
    return builder, rows, draw(st.integers(0, 100))


def read(builder):
    """Dense truth without filtered pairs, and the filter."""
    filtered = np.zeros((ROWS, LABELS), dtype=bool)
    filtered[builder.filter[:, 0], builder.filter[:, 1]] = True
    return np.where(filtered, 0, builder.targets.toarray()), filtered


@settings(max_examples=150)
@given(problems())
def test_targets_of_a_batch_equal_the_relevance_matrix(problem):
    builder, rows, seed = problem
    batch = builder.build(rows, rng=generator(seed))
    truth, filtered = read(builder)
    pool = np.arange(LABELS) if batch.view.pool is None else batch.view.pool.numpy()
    queries = batch.queries.numpy()
    assert (batch.view.pool is None) == builder.all_labels
    assert np.all(np.diff(pool) > 0)  # sorted, each label once
    assert builder.all_labels or builder.cap is None or len(pool) <= builder.cap

    # targets are the full relevance on the pool, so no known positive is a negative
    assert batch.view.targets.shape == (len(queries), len(pool))
    cells = set(zip(batch.view.targets.rows.tolist(), batch.view.targets.cols.tolist(), strict=True))
    assert len(cells) == len(batch.view.targets.rows)
    dense = batch.view.targets.dense().numpy()
    assert np.array_equal(dense, truth[queries][:, pool])

    # exactly the filtered pairs are masked, and only when there are some
    mask = np.ones(dense.shape, dtype=bool) if batch.view.mask is None else batch.view.mask.numpy()
    assert np.array_equal(mask, ~filtered[queries][:, pool])
    assert batch.view.mask is None or not mask.all()
    negatives = mask & (dense == 0)
    assert not np.any(negatives & (builder.targets.toarray()[queries][:, pool] > 0))

    # rows: each once, in order of first mention, without those that have no positive
    mentioned = list(dict.fromkeys(rows.tolist()))
    kept = [row for row in mentioned if builder.keep_empty or truth[row][pool].any()]
    assert queries.tolist() == kept


@settings(max_examples=60)
@given(problems())
def test_the_same_numbers_build_the_same_batch(problem):
    builder, rows, seed = problem
    first, second = (builder.build(rows, rng=generator(seed)) for _ in range(2))
    assert torch.equal(first.queries, second.queries)
    assert (first.view.pool is None and second.view.pool is None) or torch.equal(first.view.pool, second.view.pool)
    assert torch.equal(first.view.targets.dense(), second.view.targets.dense())
    assert (first.view.mask is None) == (second.view.mask is None)


@settings(max_examples=60)
@given(problems())
def test_without_a_cap_every_row_keeps_what_was_picked_for_it(problem):
    builder, rows, seed = problem
    if builder.cap is not None:
        return
    batch = builder.build(rows, rng=generator(seed))
    truth, _ = read(builder)
    assert {row for row in rows.tolist() if truth[row].any()} <= set(batch.queries.tolist())
    actual = builder.statistics(batch)
    limit = truth[np.unique(rows)].astype(bool).sum(1).max(initial=0)
    assert actual["positives_per_query"] <= limit
    assert 0 <= actual["positives_covered"] <= 1
    if isinstance(builder.positives, All) and len(batch.queries):
        assert actual["positives_covered"] == 1 or not truth[batch.queries.numpy()].any()


@pytest.mark.parametrize("loss", [DecoupledSoftmax(), Softmax(), BCE()])
def test_losses_accept_a_batch(loss):
    rng = np.random.default_rng(0)
    builder = PoolBuilder(relevance(rng), np.array([[row, row % LABELS] for row in range(ROWS)]), positives=Some(2))
    batch = builder.build(np.arange(ROWS), rng=generator(0))
    scores = torch.randn(batch.view.targets.shape, requires_grad=True)
    loss(scores, batch.view.targets, batch.view.mask).backward()
    assert torch.all(scores.grad[~batch.view.mask] == 0)
    assert torch.isfinite(scores.grad).all()


def test_clustered_batches_hold_more_positives_per_query_than_shuffled_ones():
    """Rows of a topic share labels, and their vectors show the topic."""
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 24, 960)
    labels = topic[:, None] * 12 + rng.integers(0, 12, (960, 5))
    targets = sparse.csr_matrix((np.ones(4800), (np.repeat(np.arange(960), 5), labels.ravel())), shape=(960, 288))
    targets.data[:] = 1
    vectors = torch.from_numpy(rng.standard_normal((24, 16))[topic] + 0.3 * rng.standard_normal((960, 16)))
    builder = PoolBuilder(targets, positives=One())
    actual = {}
    for order in (Shuffled(np.arange(960), 40, seed=0), Clustered(balanced_clusters(vectors, 40, seed=0), 40, seed=0)):
        steps = [builder.build(rows, rng=generator(0, step)) for step, rows in enumerate(order.batches(0))]
        statistics = [builder.statistics(batch) for batch in steps]
        actual[type(order)] = {key: np.mean([one[key] for one in statistics]) for key in statistics[0]}
    assert actual[Clustered]["positives_per_query"] > 2 * actual[Shuffled]["positives_per_query"]
    assert actual[Clustered]["positives_covered"] > 0.9
    assert actual[Clustered]["pool_size"] < actual[Shuffled]["pool_size"]
