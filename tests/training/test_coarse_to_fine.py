"""Stages over nested spaces: each over finer groups than the one before, beside the heads of coarser levels."""

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import SettingError
from megalabel.model.store import load_head_tensors
from megalabel.network.spaces import load_spaces
from megalabel.plan import plan
from megalabel.plan.sizes import Sizes
from megalabel.plan.workload import Workload
from megalabel.recipes import load_recipe

SMALL = [
    "encoder.source=null", "encoder.options={dim: 16, words: 256, bigrams: 0, characters: 0}",
    "spaces.coarse.size=4", "spaces.fine={size: 12, features: ngrams}", "heads.fine.candidates.top=1",
    "heads.labels.candidates.top=2", "heads.tree.leaf=4", "heads.tree.branches=2",
    "ngrams={words: 256, bigrams: 256, characters: 0}", "batching.batch_size=32", "batching.min_batches=null",
    "training.epochs=2", "stages.coarse.training.epochs=1", "stages.fine.training.epochs=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    data = ml.load("synthetic:points=300,labels=40,seed=3")
    return ml.train(load_recipe("xr-transformer-cpu", SMALL), data, folder, keep_checkpoints=True), data, folder


def stage(folder, name):
    place = folder / "stages" / f"select-{name}"
    return place if place.is_dir() else next((folder / "stages").glob(f"*-{name}"))


def test_every_stage_takes_over_the_coarser_levels_and_trains_them_on(run):
    model, _, folder = run
    coarse, fine, labels = (load_head_tensors(stage(folder, name)) for name in ("coarse", "fine", "labels"))
    sizes = [
        {name: len(value) for name, value in part.items() if name.endswith("table")} for part in (coarse, fine, labels)
    ]
    assert sizes[0] == {"heads.coarse.table": 4}
    assert sizes[1] == {"heads.coarse.table": 4, "heads.fine.table": 12}
    assert sizes[2] == {"heads.coarse.table": 4, "heads.fine.table": 12, "heads.labels.table": 40}
    before = {**coarse, "heads.fine.table": fine["heads.fine.table"]}
    for name in ("coarse", "fine"):  # gradients reach every level
        change = (labels[f"heads.{name}.table"] - before[f"heads.{name}.table"]).abs().max()
        assert 0 < change < 1
    assert set(model.heads) == {"coarse", "fine", "labels", "tree"}


def test_groups_are_the_same_in_every_stage_and_nest(run):
    model, data, folder = run
    labels = len(data.labels)
    first = load_spaces(stage(folder, "coarse") / "spaces", ["coarse"], labels)["coarse"]
    second = load_spaces(stage(folder, "fine") / "spaces", ["coarse", "fine"], labels)
    spaces = model.network.spaces
    assert np.array_equal(first.group_of, second["coarse"].group_of)
    for name in ("coarse", "fine"):
        assert np.array_equal(spaces[name].group_of, second[name].group_of)
    assert spaces["coarse"].relation(spaces["fine"]).getnnz(axis=0).tolist() == [1] * 12


def test_the_model_is_saved_predicts_and_takes_new_labels(run, tmp_path):
    model, data, _ = run
    texts = data.test.texts[:20]
    best = model.search(texts, 5)
    model.save(tmp_path / "model")
    again = ml.Model.load(tmp_path / "model")
    assert np.array_equal(again.search(texts, 5).ids, best.ids)
    again.add_labels(["a label nobody trained on"], ["new"])
    alone = again.search(["a label nobody trained on"], 3, heads="tree")
    assert 40 in alone.ids[0]
    again.save(tmp_path / "more")
    assert np.array_equal(ml.Model.load(tmp_path / "more").search(texts, 5).ids, again.search(texts, 5).ids)


def test_the_plan_knows_the_size_of_every_level():
    recipe = load_recipe("xr-transformer-cpu")
    stages = Workload(recipe, Sizes(points=100_000, labels=50_000)).stages()
    sizes = [[head.size for head in stage.heads] for stage in stages]
    assert sizes == [[64], [64, 4_096], [64, 4_096, 50_000]]
    assert plan(recipe, points=100_000, labels=50_000).fits


def test_a_stage_over_groups_has_heads_over_coarser_groups_only():
    heads = "stages.coarse.heads={fine: {kind: free, space: fine, loss: bce}, coarse: {kind: free, loss: bce}}"
    with pytest.raises(SettingError, match=r"stage coarse: heads\.fine\.space must be made of 'coarse'"):
        load_recipe("xr-transformer-cpu", [heads])
