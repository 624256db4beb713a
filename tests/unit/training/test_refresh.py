"""When clusters and negatives are recomputed, and which search finds the negatives."""

import numpy as np
import pytest
import torch

import megalabel as ml
from megalabel.errors import SettingError
from megalabel.index import ExactIndex
from megalabel.network.vectors import label_side, query_side
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_encoders, build_network
from megalabel.training.phase import Texts
from megalabel.training.refresh import refresh

SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0}",
    "batching.negatives.top=8",
    "batching.batch_size=64",
]
SEARCHES = ["exact", "{kind: hnsw, M: 4, ef_search: 24}", "{kind: ivf, nprobe: 4}", "{kind: ivf, pq: 4}"]


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=900,labels=1200,seed=3")


def mined(data, search, *changes, epoch=5, seed=7):
    recipe = load_recipe("unidec-cpu", [*SMALL, f"batching.negatives.search={search}", *changes])
    torch.manual_seed(0)
    encoders = build_encoders(recipe, data)
    texts = Texts.of(data, encoders)
    network = build_network(recipe, encoders, len(data.labels))
    network.eval()
    actual = refresh(network, recipe.batching, data.train, texts.train, texts.labels, epoch=epoch, seed=seed)
    return actual, network, texts


def test_exact_negatives_are_the_best_wrong_labels(data):
    actual, network, texts = mined(data, "exact")
    name = next(iter(network.heads))
    index = ExactIndex(label_side(network, texts.labels)[name].vectors)
    known = data.train.targets + data.train.excluded() if data.train.filter is not None else data.train.targets
    want = index.search(query_side(network, texts.train)[name], 8, exclude=known.tocsr())
    np.testing.assert_array_equal(actual.mined, want.ids)


def test_negatives_by_score_with_bias_are_the_best_wrong_labels(data):
    heads = "heads={classifier: {kind: free, bias: true, temperature: {value: 0.5}, loss: bce}}"
    lists = {}
    for bias in (False, True):
        torch.manual_seed(0)
        recipe = load_recipe("unidec-cpu", [*SMALL, heads, "predict={}", f"batching.negatives.bias={bias}"])
        encoders = build_encoders(recipe, data)
        texts = Texts.of(data, encoders)
        network = build_network(recipe, encoders, len(data.labels)).eval()
        torch.nn.init.normal_(network.head("classifier").bias, std=2)
        lists[bias] = refresh(network, recipe.batching, data.train, texts.train, texts.labels, epoch=5, seed=7).mined
    side = label_side(network, texts.labels)["classifier"]
    scores = query_side(network, texts.train)["classifier"] @ side.vectors.T + side.bias
    scores[torch.from_numpy(data.train.targets.toarray() > 0)] = -torch.inf
    assert data.train.filter is None or not len(data.train.filter)
    np.testing.assert_array_equal(lists[True], scores.topk(8).indices.numpy())
    assert (lists[False] != lists[True]).mean() > 0.5


@pytest.mark.parametrize("search", SEARCHES[1:])
@pytest.mark.parametrize("order", ["clustered", "shuffled"])
def test_approximate_negatives_are_wrong_labels_too_and_mostly_the_same(data, search, order):
    exact, *_ = mined(data, "exact", f"batching.order={order}")
    actual, *_ = mined(data, search, f"batching.order={order}")
    assert actual.mined.shape == (len(data.train), 8)
    assert (actual.mined >= 0).all()
    rows = np.repeat(np.arange(len(data.train)), 8)
    assert data.train.targets[rows, actual.mined.ravel()].sum() == 0
    same = [len(set(a) & set(b)) / 8 for a, b in zip(exact.mined.tolist(), actual.mined.tolist(), strict=True)]
    assert np.mean(same) > 0.5
    np.testing.assert_array_equal(actual.clusters, exact.clusters)


@pytest.mark.parametrize("search", SEARCHES)
def test_same_seed_same_bits(data, search):
    for seed in (7, 2**40):
        first, second = mined(data, search, seed=seed)[0], mined(data, search, seed=seed)[0]
        np.testing.assert_array_equal(first.mined, second.mined)


def test_epochs_of_a_refresh():
    settings = load_recipe("unidec-cpu", ["batching.refresh={start: 2, every: 3}"]).batching
    assert [epoch for epoch in range(9) if settings.refresh_due(epoch)] == [2, 5, 8]
    never = ["batching.order=shuffled", "batching.negatives={}", "batching.refresh={}"]
    settings = load_recipe("unidec-cpu", never).batching
    assert not any(settings.refresh_due(epoch) for epoch in range(9))


def test_settings_of_the_search():
    assert load_recipe("unidec-cpu").batching.negatives.search.kind == "exact"
    search = load_recipe("astec").batching.negatives.search
    assert search.kind == "hnsw"
    assert search.options() == {"M": 100, "ef_construction": 300, "ef_search": 400}
    assert load_recipe("astec-cpu").batching.negatives.search.kind == "hnsw"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("hnws", "'hnsw'"),
        ("{kind: ivf, M: 3}", "unknown key 'batching.negatives.search.M'"),
        ("{M: 3}", "unknown key 'batching.negatives.search.M'"),
        ("{kind: hnsw, M: 1}", "greater than or equal to 2"),
        ("{kind: ivf, nprobe: 0}", "greater than 0"),
        ("{kind: hnsw, links: 3}", "unknown key"),
        ("3", "search"),
    ],
)
def test_wrong_settings_give_one_line(value, words):
    with pytest.raises(SettingError) as error:
        load_recipe("unidec-cpu", [f"batching.negatives.search={value}"])
    assert words in str(error.value)
    assert "\n" not in str(error.value)
