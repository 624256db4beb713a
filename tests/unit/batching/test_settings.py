"""Settings of batching: what each kind has, what is refused, and what they build."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import sparse

from megalabel.batching import CandidateBuilder, Mined, PoolBuilder, Some, Uniform, generator
from megalabel.batching.negatives import SearchSettings
from megalabel.batching.settings import BatchingSettings, HeadsBatching
from megalabel.data.dataset import Split

TARGETS = sparse.csr_matrix(np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0]], dtype=np.float32))
NONE = np.empty((0, 0), dtype=np.int32)
LISTS = np.array([[4, 5], [0, 5]], dtype=np.int32)
ROWS = np.arange(2)


def make(**document):
    return TypeAdapter(BatchingSettings).validate_python(document)


def build(lists=NONE, **document):
    return make(**document).builder(TARGETS, None, lists)


def message(**document):
    with pytest.raises(ValidationError) as error:
        make(**document)
    first = error.value.errors()[0]
    return ".".join(map(str, first["loc"])) + ": " + first["msg"]


def test_a_plain_mapping_is_a_pool():
    settings = make()
    assert settings.labels == "pool"
    assert settings.positives.picker() == Some(3)
    assert not settings.mines
    assert not settings.clusters


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"labels": "alll"}, "did you mean 'all'?"),
        ({"labels": "all", "cap": 3}, "unknown key 'cap'"),
        ({"labels": "all", "positives": "all"}, "unknown key 'positives'"),
        ({"labels": "all", "negatives": {"mined": 3}}, "unknown key 'negatives'"),
        ({"labels": "all", "log_q": True}, "unknown key 'log_q'"),
        ({"labels": "candidates", "log_q": True}, "unknown key 'log_q'"),
        ({"labels": "candidates", "cap": 9}, "unknown key 'cap'"),
        ({"labels": "candidates", "fill": "positives"}, "unknown key 'fill'"),
        ({"labels": "heads", "positives": "one"}, "unknown key 'positives'"),
        ({"positives": {"pick": "one", "count": 3}}, "positives: unknown key 'count'"),
        ({"positives": {"pick": "all", "replacement": True}}, "positives: unknown key 'replacement'"),
        ({"negatives": {"top": 50}}, "negatives: Value error, top has no effect: mined and bm25 are 0"),
        ({"negatives": {"search": "hnsw"}}, "search has no effect: mined is 0"),
        ({"negatives": {"mined": 3, "search": {"kind": "ivf", "M": 3}}}, "negatives.search: unknown key 'M'"),
        ({"refresh": {"start": 2}}, "refresh has no effect"),
        ({"labels": "all", "refresh": {"every": 2}}, "refresh has no effect"),
        ({"negatives": {"uniform": 9}, "refresh": {"start": 2}}, "refresh has no effect"),
        ({"unsampled": "negative"}, "unsampled has no effect: loss_positives is all"),
        ({"fill": "positives"}, "fill has no effect: there is no cap"),
        ({"fill": "positives", "cap": 9, "positives": "all"}, "fill has no effect: all positives"),
        ({"min_gap": 3, "negatives": {"uniform": 2}}, "min_gap has no effect: there is no cap"),
        ({"min_gap": 3, "cap": 9}, "min_gap has no effect: there are no negatives"),
        ({"order": "clusterd"}, "order: kind is 'clusterd'; did you mean 'clustered'?"),
        ({"order": {"size": 4}}, "order: unknown key 'size'"),
        ({"order": {"kind": "clustered", "power": 1}}, "order: unknown key 'power'"),
        ({"order": {"kind": "clustered", "double_at": [3]}}, "double_at has no effect: clusters are as large"),
        ({"order": {"kind": "clustered", "size": 2, "double_at": [3, 3]}}, "double_at must list epochs in ascending"),
        ({"order": {"kind": "clustered", "size": 9}, "batch_size": 8}, "order.size is 9, more than the 8 of a batch"),
        ({"order": {"kind": "by_label", "replacement": False, "power": 1}}, "power has no effect: without replacement"),
        ({"order": "by_label", "refresh": {"start": 2}}, "refresh has no effect"),
        ({"order": "by_label", "positives": "one"}, "positives has no effect: a batch of labels"),
        ({"order": "by_label", "labels": "candidates"}, "order is by_label, which needs labels: pool or all"),
        ({"order": "clustered", "refresh": {"every_steps": 9}}, "clusters cannot change within an epoch"),
        ({"negatives": {"mined": 1}, "refresh": {"every": 2, "every_steps": 9}}, "every has no effect: every_steps"),
        ({"negatives": {"bm25": 1}, "refresh": {"start": 2}}, "refresh has no effect"),
        ({"negatives": {"bm25": 1, "search": "hnsw"}}, "search has no effect: mined is 0"),
        ({"negatives": {"mined": 3, "search": {"kind": "ivf", "rerank": 3}}}, "rerank has no effect: pq is not given"),
        (
            {"labels": "candidates", "positives": "one", "loss_positives": "one"},
            "has no effect: at most 1 of",
        ),
        (
            {"labels": "candidates", "positives": {"count": 3}, "loss_positives": 3},
            "has no effect: at most 3 of",
        ),
        ({"loss_positives": 0}, "loss_positives: expected all, one or a whole number above 0"),
    ],
)
def test_settings_without_effect_are_refused(document, words):
    assert words in message(**document)


@pytest.mark.parametrize(
    "document",
    [
        {"order": "clustered", "refresh": {"start": 2}},
        {"negatives": {"mined": 3, "top": 50, "search": "hnsw"}, "refresh": {"start": 2}},
        {"labels": "candidates", "negatives": {"mined": 3}, "refresh": {"every": 1}},
        {"labels": "all", "order": "clustered", "refresh": {"every": 1}},
        {"order": {"kind": "clustered", "size": 1, "double_at": [2, 4]}, "refresh": {"start": 0}},
        {"order": {"kind": "by_label", "power": 1.0}},
        {"labels": "all", "order": {"kind": "by_label", "replacement": False}},
        {"negatives": {"mined": 2}, "refresh": {"start": 0, "every_steps": 100}},
        {"negatives": {"bm25": 1, "top": 50}},
        {"loss_positives": "one", "unsampled": "negative"},
        {"cap": 9, "fill": "positives", "min_gap": 2, "negatives": {"uniform": 2}},
        {"labels": "candidates", "positives": {"count": 3}, "loss_positives": 2},
        {"negatives": {"mined": 3, "search": {"kind": "ivf", "pq": 8, "rerank": 3}}},
    ],
)
def test_the_same_settings_are_kept_where_they_have_an_effect(document):
    settings = make(**document)
    assert make(**settings.model_dump(mode="json")) == settings


def test_a_pool_has_what_its_settings_say():
    negatives = {"mined": 2, "uniform": 3}
    builder = build(LISTS, positives={"count": 2, "replacement": True}, negatives=negatives, cap=9, min_gap=2,
                    fill="positives")  # fmt: skip
    assert isinstance(builder, PoolBuilder)
    assert builder.positives == Some(2, replacement=True)
    assert [type(source) for source in builder.negatives] == [Mined, Uniform]
    assert (builder.cap, builder.min_gap, builder.fill) == (9, 2, "positives")
    assert [type(source) for source in build(negatives=negatives).negatives] == [Uniform]  # nothing mined yet


def test_fill_and_min_gap_change_the_pool():
    full = build(positives="one", cap=6, fill="positives").build(ROWS, rng=generator(0)).view.pool
    assert full.tolist() == [0, 1, 2, 3]
    settings = {"positives": "all", "cap": 5, "negatives": {"mined": 1}}
    assert len(build(LISTS, **settings).build(ROWS, rng=generator(0)).view.pool) == 5
    assert build(LISTS, **settings, min_gap=1).build(ROWS, rng=generator(0)).view.pool.tolist() == [0, 1, 2, 3]


def test_candidates_and_all_labels():
    builder = build(LISTS, labels="candidates", positives="all", negatives={"mined": 2, "uniform": 1})
    assert isinstance(builder, CandidateBuilder)
    assert (builder.uniform, builder.lists) == (1, [(LISTS, 2)])
    for labels in ("all", "heads"):
        batch = build(labels=labels).build(ROWS, rng=generator(0))
        assert batch.view.pool is None
        assert batch.view.targets.dense().tolist() == TARGETS.toarray().tolist()


KINDS = [{"labels": "all"}, {"positives": "all"}, {"labels": "candidates", "positives": "all"}]


@pytest.mark.parametrize("kind", KINDS, ids=["all", "pool", "candidates"])
@pytest.mark.parametrize(
    ("count", "expected"), [("one", [1, 1]), (1, [1, 1]), (2, [2, 2]), (9, [3, 2]), ("all", [3, 2])]
)
def test_the_loss_sees_so_many_positives(kind, count, expected):
    batches = [build(**kind, loss_positives=count).build(ROWS, rng=generator(seed)) for seed in range(30)]
    assert all(batch.view.targets.dense().sum(dim=1).tolist() == expected for batch in batches)
    drawn = {tuple(batch.view.targets.cols.tolist()) for batch in batches}
    assert (len(drawn) > 1) == (expected != [3, 2])  # anew in each step


@pytest.mark.parametrize("kind", KINDS, ids=["all", "pool", "candidates"])
def test_unsampled_positives_are_masked_or_negatives(kind):
    masked = build(**kind, loss_positives="one").build(ROWS, rng=generator(0))
    negative = build(**kind, loss_positives="one", unsampled="negative").build(ROWS, rng=generator(0))
    assert masked.view.targets.dense().tolist() == negative.view.targets.dense().tolist()
    whole = build(**kind).build(ROWS, rng=generator(0))
    there = whole.view.targets.dense().bool() if whole.view.mask is None else whole.view.mask
    positives = whole.view.targets.dense().bool()
    unsampled = positives & ~masked.view.targets.dense().bool()
    assert unsampled.sum() == 3
    assert not masked.view.mask[unsampled].any()
    assert masked.view.mask[positives & ~unsampled].all()
    assert negative.view.mask is None or negative.view.mask[there].all()


def test_size_of_a_batch():
    settings = make(batch_size=100, min_batches=4)
    assert [settings.size(points) for points in (2, 40, 399, 400, 10**6)] == [1, 10, 80, 100, 100]
    assert [make(batch_size=100).size(points) for points in (0, 99, 100, 101, 250)] == [100, 100, 100, 51, 84]


@given(st.integers(0, 5_000), st.integers(1, 300), st.none() | st.integers(1, 40))
def test_the_largest_batch_leads_to_no_more_batches_and_to_min_batches_at_least(items, batch_size, least):
    size = make(batch_size=batch_size, min_batches=least).size(items)
    limit = batch_size if least is None else min(batch_size, max(1, items // least))
    assert 1 <= size <= limit
    assert -(-items // size) == -(-items // limit) >= min(items, least or 0)


def test_start_counts_the_epochs_before_the_first_refresh():
    settings = make(order="clustered", refresh={"start": 2, "every": 3})
    assert [epoch for epoch in range(9) if settings.refresh_due(epoch)] == [2, 5, 8]
    assert [settings.refresh_count(epochs) for epochs in (2, 3, 5, 6)] == [0, 1, 1, 2]
    at_once = make(order="clustered", refresh={"start": 0})
    assert at_once.refresh_due(0)
    assert not any(make().refresh_due(epoch) for epoch in range(20))
    assert make().refresh_count(20) == 0
    assert settings.refresh_count(10**12) == 333_333_333_333  # counted without a loop
    assert [epoch for epoch in range(9) if settings.refresh_due(epoch, frozen=True)] == [2]
    assert [settings.refresh_count(epochs, frozen=True) for epochs in (2, 3, 9)] == [0, 1, 1]


def test_sizes_for_the_plan():
    assert make(labels="all").pool_size(32, 1000, 4.0) == 1000
    assert make(labels="candidates", negatives={"mined": 5, "uniform": 2}).labels_per_query(32, 10**6, 4.0) == 10
    sizes = [
        make(positives="one").pool_size(32, 10**9, 4.0),
        make(positives={"count": 3}).pool_size(32, 10**9, 4.0),
        make(positives="all", negatives={"uniform": 7}).pool_size(32, 10**9, 4.0),
        make(positives="one", cap=80, fill="positives").pool_size(32, 10**9, 4.0),
    ]
    assert sizes == [32, 96, 135, 80]


def test_options_of_a_search():
    search = TypeAdapter(SearchSettings)
    assert search.validate_python("ivf").options() == {}
    assert search.validate_python({"kind": "hnsw", "M": 4, "ef_search": 9}).options() == {"M": 4, "ef_search": 9}
    assert search.validate_python({}).kind == "exact"


def test_positives_of_the_loss_are_not_picked_where_heads_propose_candidates():
    with pytest.raises(ValidationError, match="loss_positives has no effect"):
        HeadsBatching(loss_positives="one")
    assert HeadsBatching().loss_positives == "all"


def test_negatives_are_mined_at_fixed_steps():
    """At the first step of the first epoch that has them, then at every multiple of every_steps."""
    settings = make(negatives={"mined": 1}, refresh={"start": 2, "every_steps": 4})
    steps = 3  # of an epoch
    places = [(step // steps, step, step % steps) for step in range(8 * steps)]
    due = [step for epoch, step, place in places if settings.refresh_due(epoch, step, place)]
    assert due == [6, 8, 12, 16, 20]
    for epochs in range(9):
        assert settings.refresh_count(epochs, steps) == sum(step < epochs * steps for step in due)
    once = make(negatives={"mined": 1}, refresh={"start": 0, "every_steps": 1000})
    assert once.refresh_count(3, 10) == 1


def test_clusters_are_made_anew_when_they_double():
    order = {"kind": "clustered", "size": 2, "double_at": [1, 4, 7]}
    settings = make(order=order, batch_size=8, refresh={"start": 2, "every": 5})
    due = [epoch for epoch in range(12) if settings.refresh_due(epoch)]
    assert due == [2, 4, 7]
    assert [settings.cluster_size(epoch, 100) for epoch in due] == [4, 8, 8]
    assert settings.refresh_count(12) == 3


def test_an_epoch_goes_through_points_or_labels():
    split = Split(["a", "b"], TARGETS, ["1", "2"])
    assert make(batch_size=2).epoch_items(split) == 2
    by_label = make(order="by_label", batch_size=3, min_batches=2)
    assert by_label.epoch_items(split) == 4  # two labels have no point
    assert by_label.steps(split) == 2
    assert by_label.epoch_items(replace(split, filter=np.array([[0, 0], [0, 2]]))) == 3  # a filtered pair is no point
    assert by_label.size(4) == 2
    assert by_label.pool_size(100, 10**6, 9.0) <= 100


def test_negatives_by_bm25_come_from_lists_of_their_own():
    pool = make(negatives={"mined": 1, "bm25": 2, "top": 5}).builder(TARGETS, None, LISTS, LISTS[::-1])
    assert [(source.eta, source.lists.tolist()) for source in pool.negatives] == [
        (1, LISTS.tolist()), (2, LISTS[::-1].tolist()),
    ]  # fmt: skip
    lists = make(labels="candidates", negatives={"bm25": 2}).builder(TARGETS, None, NONE, LISTS).lists
    assert [(part.tolist(), count) for part, count in lists] == [(LISTS.tolist(), 2)]
