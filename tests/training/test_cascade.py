"""A model that searches groups of labels first, from YAML to predictions."""

import numpy as np
import pytest
from scipy import sparse

from megalabel import Model, load, train
from megalabel.errors import MegalabelError
from megalabel.network.spaces import LabelSpace
from megalabel.plan import plan
from megalabel.recipes.build import build_encoders, build_network
from megalabel.recipes.load_recipe import make_recipe
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts
from megalabel.types import LABELS

RECIPE = {
    "name": "mine",
    "paper": "none",
    "about": "three levels",
    "encoder": {"kind": "bag", "source": None, "options": {"dim": 16, "words": 512, "bigrams": 0, "characters": 0}},
    "spaces": {"coarse": {"size": 3}, "fine": {"size": 8}},
    "heads": {
        name: {
            "kind": "free",
            "init": "points",
            "bias": True,
            "temperature": {"value": 1.0},
            "normalise": False,
            "loss": "bce",
            **more,
        }
        for name, more in {
            "first": {"space": "coarse"},
            "second": {"space": "fine", "candidates": {"from": "first", "top": 2}},
            "labels": {"candidates": {"from": "second", "top": 3}},
        }.items()
    },
    "batching": {"labels": "heads", "batch_size": 32},
    "training": {
        "epochs": 12,
        "encoder": {"kind": "adamw", "lr": 0.02},
        "tables": {"kind": "row_adagrad", "lr": 0.1},
    },
    "predict": {"cascade": {}},
}
WIDE = {"cascade": {"beam": 8}}


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=300,labels=24")


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cascade") / "run"
    train(make_recipe(RECIPE), data, folder)
    return folder


def changed(**sections):
    return {**RECIPE, **sections}


def test_evaluation_goes_through_the_cascade(folder, data):
    model = Model.load(folder)
    exact = Model.load(folder)
    exact.cascade = make_recipe(changed(predict=WIDE)).predict.cascade
    best, full = (each.search(data.test.texts, 24, exclude=data.test.excluded()).ids for each in (model, exact))
    assert (best < 0).any() and (full < 0).sum() <= data.test.excluded().nnz  # a narrow beam reaches some labels only
    assert model.evaluate(data.test).metrics["P@1"] > 40
    for text, found in zip(data.test.texts[:5], best, strict=False):
        assert [one.id for one in model.predict([text], k=24)[0]] == [one for one in found if one >= 0]
    top, scores = model.search_with_head_scores(data.test.texts[:4], 5)
    assert np.array_equal(top.ids, model.search(data.test.texts[:4], 5).ids)
    assert set(scores) == {"first", "second", "labels"}


def test_labels_added_removed_and_saved(folder, data, tmp_path):
    model = Model.load(folder)
    (uid,) = model.add_labels([data.labels.texts[3]])
    found = [one.uid for one in model.predict([data.labels.texts[3]], k=25)[0]]
    assert uid in found
    model.remove_labels([found[0] if found[0] != uid else found[1]])
    model.save(tmp_path / "more")
    again = Model.load(tmp_path / "more")
    for text in data.test.texts[:10]:
        one, other = model.predict([text], k=6)[0], again.predict([text], k=6)[0]
        assert [each.uid for each in one] == [each.uid for each in other]
        np.testing.assert_allclose([each.score for each in one], [each.score for each in other], rtol=1e-5)


def test_explanations_multiply_probabilities(folder, data):
    model = Model.load(folder)
    why = model.explain(data.test.texts[0])
    best = model.predict(data.test.texts[:1], k=1)[0][0]
    assert (why.id, why.rank) == (best.id, 1)
    assert why.probability == pytest.approx(best.score, rel=1e-5)
    assert np.exp(sum(part.adds for part in why.heads)) == pytest.approx(why.probability)


def test_no_index_over_a_cascade(folder):
    model = Model.load(folder)
    with pytest.raises(MegalabelError, match="through groups of labels"):
        model.build_index("exact")
    assert list(model.build_index("exact", heads="labels")) == ["labels"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"predict": {"cascade": {"beam": {"labels": 3}}}}, "predict.cascade.beam is 'labels'"),
        ({"predict": {"cascade": {"weights": {"other": 3.0}}}}, "predict.cascade.weights is 'other'"),
        ({"predict": {"cascade": {}, "weights": "validation"}}, "weights has no effect"),
        (
            {
                "heads": {"labels": {"kind": "free", "loss": "bce"}},
                "spaces": {},
                "batching": {"labels": "all", "batch_size": 8},
            },
            "predict.cascade has no effect",
        ),
        (
            {"heads": {**RECIPE["heads"], "more": {"kind": "free", "space": "fine", "loss": "bce"}}},
            "'more' is not part",
        ),
    ],
)
def test_refusals(sections, message):
    with pytest.raises(MegalabelError, match=message):
        make_recipe(changed(**sections))


def test_the_plan_counts_a_cascade():
    recipe = make_recipe(changed(spaces={"coarse": {"size": 100}, "fine": {"size": 10_000}}))
    exhaustive = make_recipe(changed(spaces={"coarse": {"size": 100}, "fine": {"size": 10_000}}, predict={}))
    narrow, full = (plan(each, points=10_000, labels=1_000_000).work.evaluate for each in (recipe, exhaustive))
    searched = plan(recipe, points=10_000, labels=1_000_000).workload.searched
    assert searched == 16 * (100 + 2 * 100 + 3 * 100)
    assert narrow < full / 10


def test_the_loss_of_every_level_reaches_its_vectors_and_the_encoder(data):
    recipe = make_recipe(RECIPE)
    encoders = build_encoders(recipe, data)
    groups = {"fine": np.arange(24) // 3, "coarse": np.arange(24) // 9}
    spaces = {LABELS: LabelSpace(LABELS, 24)}
    for name, group_of in groups.items():
        cells = np.ones(24, dtype=np.float32), (group_of, np.arange(24))
        spaces[name] = LabelSpace(name, int(group_of.max()) + 1, sparse.csr_matrix(cells))
    network = build_network(recipe, encoders, spaces)
    texts = Texts.of(data, encoders)
    loop = Loop(recipe, network, data.train, texts.train, texts.labels)
    rows = np.arange(16)
    batch = loop._with_spaces(loop._builder().build(rows, rng=np.random.default_rng(0)))
    for name in network.heads:
        network.zero_grad()
        loop.stepper.losses(batch, texts.train.take(rows), texts.labels)[name].backward()
        touched = [each for each in network.heads if network.head(each).table.grad is not None]
        assert touched == [name]  # candidates are chosen without a gradient
        assert network.head(name).table.grad.to_dense().abs().sum() > 0
        assert network.encoder.table.grad.to_dense().abs().sum() > 0
    truth = loop.truth
    for name in ("second", "labels"):  # teacher forcing: whatever is proposed, positives are among the candidates
        space = network.space(name).name
        view = loop.stepper.proposals[name].view(rows, np.full((len(rows), 1), -1))
        for row in range(len(rows)):
            assert set(truth[space][row].indices) <= set(view.candidates[row].tolist())


@pytest.mark.parametrize("kind", ["free", "linked"])
def test_groups_in_half_precision_propose_labels(data, kind):
    """Tables may be stored in half precision; queries are not."""
    first = {**RECIPE["heads"]["first"], "dtype": "bfloat16"}
    labels = {**RECIPE["heads"]["labels"], "kind": kind, "candidates": {"from": "first", "top": 2}}
    recipe = changed(
        heads={"first": first, "labels": labels},
        spaces={"coarse": {"size": 3}},
        training={**RECIPE["training"], "epochs": 1, "tables": {"kind": "sgd", "lr": 0.01, "momentum": 0.0}},
    )
    assert train(make_recipe(recipe), data).evaluate(data).metrics["R@100"] > 0
