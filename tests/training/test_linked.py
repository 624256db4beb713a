"""An index that is learnt with the classifier, from YAML to predictions."""

import json

import numpy as np
import pytest
import torch

from megalabel import Model, load, train
from megalabel.plan import plan
from megalabel.recipes.load_recipe import load_recipe, make_recipe

FREE = {"bias": True, "init": "points", "temperature": {"value": 0.2}}
META = {
    "kind": "free",
    "space": "clusters",
    "weight": 0.1,
    "loss": {"kind": "truncated_softmax", "scale": 2.0},
    **FREE,
}
LINKED = {"kind": "linked", "candidates": {"from": "meta", "top": 2}, "shortlist": 8, "loss": "bce", **FREE}
RECIPE = {
    "name": "mine",
    "paper": "none",
    "about": "a learnt index",
    "encoder": {"kind": "bag", "source": None, "options": {"dim": 16, "words": 512, "bigrams": 0, "characters": 0}},
    "spaces": {"clusters": {"leaf": 4, "features": "points_and_ngrams"}},
    "heads": {"meta": META, "classifier": {**LINKED, "links": 8, "scale": 4.0}},
    "batching": {"labels": "heads", "batch_size": 32},
    "training": {
        "epochs": 4,
        "encoder": {"kind": "adamw", "lr": 0.02},
        "heads": {"kind": "adamw", "lr": 0.05},
        "tables": {"kind": "row_adagrad", "lr": 0.1},
    },
    "predict": {"cascade": {}},
    "stages": [
        {
            "name": "clusters",
            "heads": {"meta": META, "classifier": {**LINKED, "path_weight": 0.0}},
            "drop": ["classifier"],
        },
        {"name": "links"},
    ],
}


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=300,labels=24")


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("linked") / "run"
    train(make_recipe(RECIPE), data, folder)
    return folder


def test_links_are_learnt_and_kept(folder, data):
    model = Model.load(folder)
    head = model.network.head("classifier")
    links = head.link_labels
    assert links.shape == (8, 8)  # 24 labels, at most four in a cluster
    space = model.network.spaces["clusters"]
    for group in range(8):
        own = links[group][links[group] >= 0].tolist()
        assert len(set(own)) == len(own)
        assert set(space.members[group].indices.tolist()) <= set(own)
    assert (head.link_weights.max() > 1.0) or (head.link_weights.min() < 0.0)  # they started between 0 and 1
    assert model.evaluate(data.test).metrics["P@1"] > 40
    answers = model.search(data.test.texts, 24)
    assert ((answers.ids >= 0).sum(axis=1) <= 8).all()  # the shortlist


def test_labels_added_after_training_are_found(folder, data, tmp_path):
    model = Model.load(folder)
    (uid,) = model.add_labels([data.labels.texts[3]])
    assert uid in [one.uid for one in model.predict([data.labels.texts[3]], k=25)[0]]
    model.save(tmp_path / "more")
    again = Model.load(tmp_path / "more")
    for text in data.test.texts[:10]:
        one, other = model.predict([text], k=6)[0], again.predict([text], k=6)[0]
        assert [each.uid for each in one] == [each.uid for each in other]
    why = again.explain(data.test.texts[0])
    assert why.probability == pytest.approx(again.predict(data.test.texts[:1], k=1)[0][0].score, rel=1e-5)


@pytest.mark.parametrize("step", [5, 40])
def test_resuming_is_exact(folder, data, tmp_path, stopped_after, step):
    stopped_after(step, lambda: train(make_recipe(RECIPE), data, tmp_path / "run"))
    again = train(make_recipe(RECIPE), data, tmp_path / "run", resume=True)
    whole = Model.load(folder)
    for name, value in whole.network.stored_heads().items():
        assert torch.equal(value, again.network.stored_heads()[name]), name


def test_the_plan_counts_links():
    recipe = make_recipe(json.loads(json.dumps(RECIPE)))
    few = plan(recipe, points=1000, labels=4000).workload.heads[1].cost.matrices
    assert few == 1024 * 8  # clusters of four labels, eight links each


def test_the_published_clusters():
    recipe = load_recipe("elias")
    assert recipe.spaces["clusters"].count(131_073) == 2048 == 2 ** int(np.ceil(np.log2(131_073 / 100)))
