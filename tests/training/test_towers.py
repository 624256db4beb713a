"""Whole runs of the two-tower and classifier parts: trained, stopped, resumed, saved, loaded, with a new label."""

import copy
import signal

import numpy as np
import pytest
import torch

import megalabel as ml
from megalabel.network.spaces import load_spaces
from megalabel.recipes.load_recipe import make_recipe
from megalabel.training.phase import Phase, Stopped

BASE = {
    "name": "small",
    "paper": "none",
    "about": "none",
    "encoder": {"kind": "bag", "source": None, "options": {"dim": 16, "words": 256, "bigrams": 0, "characters": 0}},
    "batching": {"batch_size": 32, "positives": {"pick": "some", "count": 2}},
    "training": {"epochs": 3, "encoder": {"lr": 1e-2}, "tables": {"kind": "lazy_adamw", "lr": 0.05}},
}
TRIPLET = {"kind": "triplet", "margin": 0.2, "k": 5, "positives": 3, "weights": "hinge"}
ONE = {"value": 1.0}
RUNS = {
    "renee": {
        "heads": {
            "classifier": {
                "kind": "free", "init": "normal", "dtype": "bfloat16", "normalise": False, "query_dropout": 0.5,
                "temperature": ONE, "loss": {"kind": "bce", "reduction": "sum"},
            }
        },
        "batching": {"batch_size": 32, "labels": "all"},
        "training": {
            "epochs": 3, "encoder": {"lr": 1e-2}, "tables": {"kind": "sgd", "lr": 0.02, "momentum": 0.0},
            "schedule": "cosine", "warmup_steps": 2,
        },
    },
    "dexa": {
        "heads": {
            "dual": {
                "kind": "shared", "size": 6, "private": 5, "temperature": ONE,
                "loss": {"kind": "triplet", "weights": "violators"},
            }
        }
    },
    "graphsage": {"heads": {"dual": {"kind": "neighbours", "loss": "softmax"}}},
    "ngame": {
        "heads": {
            "dual": {"kind": "text", "temperature": ONE, "loss": "triplet"},
            "classifier": {
                "kind": "text_free", "unit_text": True, "query_dropout": 0.5, "temperature": ONE, "loss": TRIPLET,
            },
        },
        "stages": [
            {"name": "siamese", "heads": ["dual"]},
            {"name": "extreme", "freeze": ["encoder"], "training": {"epochs": 2, "milestones": [1]}},
        ],
    },
    "siamesexml": {
        "heads": {"classifier": {"kind": "free", "init": "graph", "temperature": ONE, "loss": TRIPLET}},
        "batching": {"batch_size": 32, "labels": "candidates", "negatives": {"uniform": 9}},
    },
    "decaf": {
        "spaces": {"clusters": {"size": 8}},
        "heads": {
            "meta": {"kind": "free", "space": "clusters", "init": "points", "bias": True, "loss": "bce"},
            "classifier": {
                "kind": "gated", "candidates": {"from": "meta", "top": 4}, "projection": "gated_residual",
                "dropout": 0.2, "bias": True, "loss": "bce",
            },
        },
        "batching": {"batch_size": 32, "labels": "heads"},
        "predict": {"cascade": {}},
        "stages": [
            {
                "name": "surrogate", "space": "clusters", "drop": ["texts"], "batching": {"labels": "all"},
                "heads": {
                    "texts": {"kind": "text", "projection": "gated_residual", "own_projection": True, "loss": "bce"}
                },
            },
            {"name": "meta", "heads": ["meta"]},
            {"name": "extreme"},
        ],
    },
    "inceptionxml-lf": {
        "spaces": {"clusters": {"size": 8, "features": "graph"}},
        "heads": {
            "meta": {"kind": "free", "space": "clusters", "init": "points", "bias": True, "loss": "bce"},
            "classifier": {
                "kind": "graph", "candidates": {"from": "meta", "top": 4, "graph": True}, "neighbours": 4,
                "projection": "relu_residual", "dropout": 0.2, "attention_dropout": 0.2, "detach_epochs": 1,
                "loss": "bce",
            },
        },
        "batching": {"batch_size": 32, "labels": "heads"},
        "predict": {"cascade": {}},
    },
    "simcse": {
        "heads": {"dual": {"kind": "text", "projection": "tanh", "search_projection": False, "loss": "softmax"}},
    },
    "ance": {
        "heads": {
            "dual": {
                "kind": "text", "projection": "layer_norm", "normalise": False, "temperature": ONE, "loss": "softmax",
            }
        }
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=150,labels=30,seed=2")


def recipe(name):
    return make_recipe(copy.deepcopy(BASE) | copy.deepcopy(RUNS[name]))


def state(model):
    return {name: value.clone() for name, value in model.network.stored().items()}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_where_it_stopped_and_its_model_survives_saving(name, data, tmp_path, monkeypatch):
    whole = ml.train(recipe(name), data, tmp_path / "whole")
    save, epochs = Phase._save, []

    def stop(self, loop, best, tags=()):
        save(self, loop, best, tags)
        epochs.append(loop.epoch)
        if len(epochs) == 1:
            raise Stopped(signal.SIGINT)

    monkeypatch.setattr(Phase, "_save", stop)
    with pytest.raises(Stopped):
        ml.train(recipe(name), data, tmp_path / "stopped")
    resumed = ml.train(recipe(name), data, tmp_path / "stopped", resume=True)
    before, after = state(whole), state(resumed)
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert torch.equal(after[key], value), key

    assert whole.evaluate(data.test).metrics["P@1"] > 3  # of 30 labels
    whole.add_labels(["a text that no label has"], ["new"])
    whole.save(tmp_path / "model")
    again = ml.Model.load(tmp_path / "model")
    queries = [*data.test.texts[:20], "a text that no label has"]
    first, second = whole.search(queries, 5), again.search(queries, 5)
    assert np.array_equal(first.ids, second.ids)
    np.testing.assert_allclose(first.scores, second.scores, rtol=1e-4, atol=1e-5)
    again.add_labels(["one more"], ["more"])
    assert len(again.labels) == 32


def test_a_space_goes_over_to_the_next_stage_with_the_head_that_scores_it(data, tmp_path):
    model = ml.train(recipe("decaf"), data, tmp_path / "run", keep_checkpoints=True)
    meta = load_spaces(tmp_path / "run" / "stages" / "select-meta" / "spaces", ["clusters"], 30)["clusters"]
    surrogate = load_spaces(tmp_path / "run" / "stages" / "select-surrogate" / "spaces", ["clusters"], 30)["clusters"]
    assert np.array_equal(model.network.spaces["clusters"].group_of, meta.group_of)
    assert not np.array_equal(meta.group_of, surrogate.group_of)  # made anew with the features that were learnt
