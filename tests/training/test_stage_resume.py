"""Stages: what is carried over, and resuming inside any stage."""

import json

import pytest
import torch

from megalabel import load, train
from megalabel.errors import DataError, SettingError
from megalabel.recipes.load_recipe import load_recipe, make_recipe

RECIPE = """
name: stages
paper: none
about: three stages
encoder: {kind: bag, source: null, options: {dim: 8, words: 256, bigrams: 0, characters: 0}}
spaces: {clusters: {size: 5}}
heads:
  dual: {kind: text, projection: linear, loss: decoupled_softmax}
  classifier: {kind: text_free, loss: decoupled_softmax}
batching: {batch_size: 32, order: clustered, negatives: {mined: 2}, refresh: {start: 1, every: 1}}
training: {epochs: 2, encoder: {kind: adamw, lr: 1.0e-2}, refit: true}
stages:
  - {name: groups, space: clusters, heads: {groups: {kind: free, loss: bce}}, drop: [groups], batching: {labels: all}}
  - {name: dual, heads: [dual]}
  - {name: both, freeze: [encoder, dual], training: {epochs: 3}}
"""


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=200,labels=16")


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "stages.yaml"
    path.write_text(RECIPE)
    return str(path)


def weights(model):
    return {name: value.detach().clone() for name, value in model.network.named_parameters()}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "stages.yaml").write_text(RECIPE)
    return weights(train(str(folder / "stages.yaml"), data, folder / "run"))


@pytest.mark.parametrize("step", [0, 6, 11, 18, 22, 30, 43, 51])  # in each stage of selecting and of the refit
def test_resume_inside_any_stage_is_exact(recipe, data, whole, tmp_path, stopped_after, step):
    stopped_after(step, lambda: train(recipe, data, tmp_path / "run"), every_step=False)
    model = train(recipe, data, tmp_path / "run", resume=True)
    again = weights(model)
    assert again.keys() == whole.keys()
    assert all(torch.equal(again[name], whole[name]) for name in whole)


def test_a_run_starts_from_another_run(recipe, data, tmp_path):
    first = train("depsl-cpu", data, tmp_path / "first", changes=SMALL)
    second = train("unidec-cpu", data, tmp_path / "second", changes=[
        *SMALL, f"init_from={tmp_path / 'first'}", "freeze=[encoder, dual]",
    ])  # fmt: skip
    for name, value in weights(first).items():
        assert torch.equal(weights(second)[name], value), name
    assert {name for name, _ in second.network.named_parameters()} > set(weights(first))


def test_what_cannot_begin_from_another_run(data, tmp_path):
    train("depsl-cpu", data, tmp_path / "first", changes=SMALL)
    base = load_recipe("depsl-cpu", SMALL).model_dump(mode="json", by_alias=True)
    head, bag = base["heads"]["dual"], base["encoders"]["encoder"]
    for change, words in (
        ({"encoder": bag | {"options": bag["options"] | {"dim": 16}}}, "options.dim is 16, but it was trained with 8"),
        ({"encoder": {"kind": "inception", "source": None}}, "kind is 'inception', but it was trained as 'bag'"),
        ({"encoders": {"mine": bag}, "heads": {"other": head}}, "has no weights for mine, other"),
    ):
        document = {key: value for key, value in base.items() if key != "encoders"}
        recipe = make_recipe(document | {"init_from": str(tmp_path / "first")} | change)
        with pytest.raises(SettingError, match=words) as error:
            train(recipe, data, tmp_path / words[:4])
        assert "\n" not in str(error.value)


def test_mistakes_in_stages(recipe, data, tmp_path):
    words = "init_from is 'dul', which is neither an earlier stage nor a run; did you mean 'dual'"
    with pytest.raises(SettingError, match=words):
        path = tmp_path / "wrong.yaml"
        path.write_text(RECIPE.replace("{name: both,", "{name: both, init_from: dul,"))
        train(str(path), data, tmp_path / "run")
    other = load("synthetic:points=200,labels=17")
    train("unidec-cpu", data, tmp_path / "first", changes=SMALL)
    with pytest.raises(DataError, match="rows of other labels"):
        train("unidec-cpu", other, tmp_path / "second", changes=[*SMALL, f"init_from={tmp_path / 'first'}"])
    for changed, words in (
        (("heads: [dual]", "heads: [dul]"), "did you mean 'dual'"),
        (("freeze: [encoder, dual]", "freeze: [encodr]"), "did you mean 'encoder'"),
        (("space: clusters", "space: cluster"), "did you mean 'clusters'"),
        (("drop: [groups]", "drop: [group]"), "did you mean 'groups'"),
        (("name: dual", "name: groups"), "different names"),
        (("training: {epochs: 3}", "training: {epoch: 3}"), "unknown key"),
    ):
        path.write_text(RECIPE.replace(*changed))
        with pytest.raises(SettingError, match=words) as error:
            train(str(path), data, tmp_path / "none")
        assert "\n" not in str(error.value)


SMALL = [
    "encoder.source=null", "encoder.options={dim: 8, words: 256, bigrams: 0, characters: 0}",
    "batching.batch_size=64", "batching.refresh={start: 1, every: 2}", "training.epochs=1",
]  # fmt: skip


def test_patience_stops_training_without_improvement(data, tmp_path):
    changes = [*SMALL, "training.epochs=6", "training.encoder.lr=1.0e-12", "training.tables.lr=1.0e-12"]
    train("depsl-cpu", data, tmp_path / "run", changes=[*changes, "training.patience=2"])
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log if "val" in record] == [1, 2, 3]


@pytest.mark.parametrize("file", ["heads.safetensors", "encoders/encoder/bag.safetensors", "labels.jsonl.gz"])
def test_a_damaged_run_is_nothing_to_begin_from(data, tmp_path, file):
    train("unidec-cpu", data, tmp_path / "first", changes=SMALL)
    path = tmp_path / "first" / "model" / file
    content = bytearray(path.read_bytes())
    content[-9] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{file}: this file changed after it was saved"):
        train("unidec-cpu", data, tmp_path / "second", changes=[*SMALL, f"init_from={tmp_path / 'first'}"])
    assert not (tmp_path / "second").exists()


def test_sources_of_all_stages_are_checked_before_the_first(recipe, data, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(RECIPE.replace("{name: both,", "{name: both, init_from: dul,"))
    with pytest.raises(SettingError, match="did you mean 'dual'"):
        train(str(path), data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
