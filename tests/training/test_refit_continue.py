"""A refit that goes on from what was selected: it learns the validation rows, and resumes bit for bit."""

import json

import numpy as np
import pytest
import torch

import megalabel as ml
from megalabel.training.further import Further

DATA = "synthetic:points=300,labels=24,seed=2"
SMALL = [
    "encoder.source=null", "encoder.options={dim: 8, words: 256, bigrams: 0, characters: 0}",
    "batching.batch_size=64", "batching.negatives.search=exact", "training.epochs=2",
    "ngrams={words: 1024, bigrams: 1024, characters: 0}", "training.refit=continue",
]  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return ml.load(DATA)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return tmp_path_factory.mktemp("whole") / "run"


@pytest.fixture(scope="module")
def whole(data, run):
    return ml.train("auto", data, run, changes=SMALL)


def weights(model):
    return {name: value.detach().clone() for name, value in model.network.named_parameters()}


def test_it_takes_one_short_epoch_more(run, whole):
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = {
        phase: [line for line in log if line["phase"] == phase and "loss" in line] for phase in ("select", "refit")
    }
    assert {line["epoch"] for line in steps["refit"]} == {0}
    assert len(steps["refit"]) < len(steps["select"])
    before, after = steps["select"][-1]["loss"], steps["refit"][0]["loss"]
    assert after < steps["select"][0]["loss"] and after < 2 * before  # it does not begin from scratch


def test_every_head_has_learnt_the_validation_rows(data, whole):
    once = ml.train("auto", data, changes=[*SMALL, "training.refit=false"])
    assert any(not torch.equal(weights(once)[name], value) for name, value in weights(whole).items())
    assert len(whole.fitted.heads["memory"].targets_.indptr) - 1 == len(data.train)
    assert len(once.fitted.heads["memory"].targets_.indptr) - 1 < len(data.train)
    assert not np.array_equal(once.fitted.heads["linear"].bias_, whole.fitted.heads["linear"].bias_)
    assert whole.fitted.heads["linear"].duals_ is None and once.fitted.heads["linear"].duals_ is None
    assert whole.fusion is not None  # of the validation rows that were held out


@pytest.mark.parametrize("step", [9, 17, 18, 21])  # while it selects, at its end, in the refit
def test_resume_is_exact(data, whole, tmp_path, stopped_after, step):
    stopped_after(step, lambda: ml.train("auto", data, tmp_path / "run", changes=SMALL), every_step=False)
    model = ml.train("auto", data, tmp_path / "run", changes=SMALL, resume=True)
    assert all(torch.equal(weights(model)[name], value) for name, value in weights(whole).items())
    texts = data.test.texts
    one, two = (each.search(texts, 5) for each in (model, whole))
    assert np.array_equal(one.ids, two.ids) and np.array_equal(one.scores, two.scores)


def test_stages_go_on_from_the_last_one(data, tmp_path):
    bag = ["encoder.source=null", "encoder.options={dim: 8, words: 256, bigrams: 0, characters: 0}"]
    changes = [*bag, "training.refit=continue", "batching.batch_size=64"]
    model = ml.train("astec-cpu", data, tmp_path / "run", changes=changes)
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    phases = list(dict.fromkeys(line["phase"] for line in log))
    assert phases == ["select-surrogate", "select-extreme", "refit"]
    assert model.evaluate(data).metrics["P@1"] > 20


def test_rows_mixed_in():
    rows = Further(mix=1.0, seed=3).rows(np.arange(300), 5_000)
    assert len(rows) == 600 and set(range(300)) <= set(rows.tolist())
    assert np.array_equal(rows, Further(mix=1.0, seed=3).rows(np.arange(300), 5_000))
    assert len(Further(mix=0.1).rows(np.arange(4), 5_000)) == 260  # a few keep company all the same
