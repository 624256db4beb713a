"""Astec's third stage: a second classifier with an encoder of its own, on what the first one predicts."""

import torch

from megalabel import load, train
from megalabel.model.store import load_encoders, load_head_tensors

OPTIONS = "options={dim: 12, words: 256, bigrams: 0, characters: 0, residual: false, activation: relu}"
SMALL = [
    *(f"encoders.{name}.{change}" for name in ("text", "reranker") for change in ("source=null", OPTIONS)),
    "spaces.clusters.size=6",
    "batching.batch_size=32",
    "batching.negatives={mined: 4, top: 8, uniform: 2}",
    "stages.reranker.batching.negatives={mined: 5, top: 5, uniform: 0, bias: true}",
    "training.milestones=[1]",
    "stages.reranker.training.milestones=[1]",
    *(f"stages.{name}.training.epochs=2" for name in ("surrogate", "extreme", "reranker")),
    "training.epochs=2",
]


def test_the_first_classifier_is_kept_and_the_second_begins_anew(tmp_path):
    data = load("synthetic:points=200,labels=30")
    changes = [change for change in SMALL if change != "stages.extreme.training.epochs=2"]
    model = train("astec", data, tmp_path / "run", changes=changes, keep_checkpoints=True)
    assert list(model.network.heads) == ["classifier", "centroids", "reranker"]
    assert set(model.weights) == {"classifier", "centroids", "reranker"}
    before = tmp_path / "run" / "stages" / "select-extreme"
    kept = load_head_tensors(before)
    state = model.network.state_dict()
    assert [name for name in kept if name.startswith("heads.classifier.")]
    for name, value in kept.items():
        assert torch.equal(state[name], value), name
    for name, value in load_encoders(before, ["text"])["text"].state_dict().items():
        assert torch.equal(state[f"encoders.text.{name}"], value), name
    assert not torch.equal(state["encoders.reranker.table"], state["encoders.text.table"])
    assert not torch.equal(state["heads.reranker.projection.weight"], torch.eye(12))
