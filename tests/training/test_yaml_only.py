"""A new system is a YAML file and nothing else."""

import textwrap

import numpy as np
import pytest
import torch

from megalabel import load, train
from megalabel.model import Model
from megalabel.model.store import load_encoders, load_head_tensors

HEAD = """
name: mine
paper: none
about: a system of my own
"""
BAG = "{kind: bag, source: null, options: {dim: 16, words: 512, bigrams: 0, characters: 0}}"
TRAINING = """
training:
  epochs: 4
  encoder: {kind: adamw, lr: 2.0e-2}
  tables: {kind: row_adagrad, lr: 0.1}
"""

UNTIED = f"""
encoders:
  query: {BAG}
  label: {BAG}
heads:
  dual: {{kind: text, encoder: query, label_encoder: label, loss: decoupled_softmax}}
batching: {{batch_size: 32, positives: all}}
{TRAINING}
"""

META = f"""
encoder: {BAG}
spaces: {{clusters: {{size: 6}}}}
heads:
  meta:
    {{kind: free, space: clusters, init: points, bias: true, temperature: {{value: 1.0}}, normalise: false, loss: bce}}
  classifier: {{kind: free, init: points, candidates: {{from: meta, top: 3}}, loss: decoupled_softmax}}
batching: {{labels: heads, batch_size: 32}}
{TRAINING.replace("epochs: 4", "epochs: 12")}
"""

STAGES = f"""
encoder: {BAG}
heads:
  dual: {{kind: text, loss: decoupled_softmax}}
  classifier: {{kind: text_free, loss: decoupled_softmax}}
batching: {{batch_size: 32, positives: all}}
{TRAINING}
stages:
  - {{name: encoder_first, heads: [dual]}}
  - {{name: classifier, freeze: [encoder], training: {{epochs: 2}}}}
"""


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=300,labels=24")


def write(folder, text):
    path = folder / "mine.yaml"
    path.write_text(HEAD + textwrap.dedent(text))
    return str(path)


def precision(model, data, **options):
    return model.evaluate(data.test, **options).metrics["P@1"]


def test_untied_dual_encoder(tmp_path, data):
    model = train(write(tmp_path, UNTIED), data, out=tmp_path / "run")
    query, label = (model.network.encoders[name] for name in ("query", "label"))
    assert not torch.equal(query.table, label.table)  # both were trained, each on its own side
    assert precision(model, data) > 50
    vector = model.network.encode("label", model.network.tokenise([data.labels.texts[3]])["label"], None)
    expected = torch.nn.functional.normalize(vector, dim=1)[0]
    torch.testing.assert_close(model.label_side()["dual"].vectors[3], expected)
    again = Model.load(tmp_path / "run")
    assert precision(again, data) == precision(model, data)


def test_meta_head_over_clusters_feeds_a_classifier(tmp_path, data):
    model = train(write(tmp_path, META), data, out=tmp_path / "run")
    network = model.network
    assert network.head("meta").table.shape[0] == 6
    assert network.head("classifier").table.shape[0] == len(data.labels)
    assert model.weights == {"meta": 0.0, "classifier": 1.0}  # a head over groups only proposes, unless it is weighted
    assert precision(model, data) > 50
    assert precision(model, data, heads="meta") > 0  # every label has the score of its cluster
    again = Model.load(tmp_path / "run")
    assert np.array_equal(again.network.spaces["clusters"].group_of, network.spaces["clusters"].group_of)
    assert precision(again, data, heads="meta") == precision(model, data, heads="meta")
    again.add_labels(["a label nobody trained on"])
    again.save(tmp_path / "more")
    more = Model.load(tmp_path / "more")
    assert more.network.spaces["clusters"].members.shape == (6, len(data.labels) + 1)
    text = ["a label nobody trained on"]
    assert more.predict(text, k=3, heads="meta") == again.predict(text, k=3, heads="meta")


def test_two_stages_with_a_frozen_encoder(tmp_path, data):
    model = train(write(tmp_path, STAGES), data, out=tmp_path / "run", keep_checkpoints=True)
    first = tmp_path / "run" / "stages" / "select-encoder_first"
    left = load_encoders(first, ["encoder"])["encoder"]
    assert torch.equal(left.table, model.network.encoder.table)  # frozen in the second stage
    assert set(load_head_tensors(first)) <= {name for name, _ in model.network.named_parameters()}
    assert model.network.head("classifier").table.abs().max() > 0  # which started at zero
    assert precision(model, data) > 50
    assert list(model.weights) == ["dual", "classifier"]
