"""A student with one vector per label learns from any trained model."""

import shutil

import numpy as np
import pytest
import torch

import megalabel as ml
from megalabel.distiller import teacher_data
from megalabel.errors import DataError, SettingError
from megalabel.index import ExactIndex
from megalabel.model.store import find_model
from megalabel.model.teach import calibrated, teach

QUICK = ["batching.batch_size=64", "batching.refresh={start: 1, every: 2}", "training.epochs=2"]


@pytest.fixture(scope="module")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture(scope="module")
def student(fused_run, tmp_path_factory):
    """A student of a model that fuses every kind of head, its run, and what was said."""
    lines, out = [], tmp_path_factory.mktemp("distil") / "student"
    return ml.distil(fused_run, out, changes=QUICK, say=lines.append), out, lines


def test_a_fused_model_becomes_one_vector_per_label(student, fused_run, data):
    model, out, lines = student
    assert model.heads == ["labels"] and model.fusion is None
    assert "the encoder encoder starts from the teacher's" in lines
    assert any(line.startswith("the teacher answers") for line in lines)
    assert any("soft labels each" in line for line in lines)
    loaded = ml.Model.load(out)
    assert loaded.evaluate(data).metrics == model.evaluate(data).metrics
    assert not (out / "teacher").exists()
    frequent = np.argsort(-data.counts)[: len(model.labels)]
    most_frequent = np.mean([data.test.targets[row, frequent[0]] > 0 for row in range(len(data.test))])
    assert model.evaluate(data).metrics["P@1"] > 100 * most_frequent + 5
    assert model.train_rows.held.tolist() == ml.Model.load(fused_run).train_rows.held.tolist()


def test_the_folded_index_ranks_like_the_student(student, data):
    model, *_ = student
    vectors = model.label_side()["labels"].vectors
    own = model.search(data.test.texts, 5)
    best = ExactIndex(vectors).search(torch.from_numpy(model.encode(data.test.texts)), 5)
    assert np.array_equal(best.ids, own.ids)
    np.testing.assert_allclose(best.scores, own.scores, atol=1e-6)
    model.build_index("ivf", nprobe=64, nlist=4)
    assert np.array_equal(model.search(data.test.texts, 5).ids, own.ids)


def test_labels_added_later_are_found(student, tmp_path):
    _, out, _ = student
    model = ml.Model.load(shutil.copytree(out, tmp_path / "run"))
    (uid,) = model.add_labels(["quokka wombat numbat"])
    assert model.predict(["quokka wombat numbat"], k=1)[0][0].uid == uid


def test_a_sum_of_heads_is_a_teacher_too(summed_run, data):
    lines = []
    model = ml.distil(summed_run, changes=QUICK, weight=1.0, label_texts=False, say=lines.append)
    assert any(line.startswith("fusion of dual, classifier fitted") for line in lines)
    assert model.evaluate(data).metrics["P@1"] > 0


def test_one_head_is_a_teacher_too(data, small, tmp_path):
    ml.train("dexml-cpu", data, tmp_path / "run", changes=[change for change in small if "refresh" not in change])
    model = ml.distil(tmp_path / "run", tmp_path / "student", changes=[*QUICK, "encoder.options.dim=16"])
    assert model.encode(["a"]).shape == (1, 16)


def test_added_and_removed_labels_of_the_teacher(summed_run, tmp_path):
    teacher = ml.Model.load(shutil.copytree(summed_run, tmp_path / "run"))
    teacher.add_labels(["quokka wombat"], ["new"])
    gone = teacher.labels.uids[3]
    teacher.remove_labels([gone])
    teacher.save(tmp_path / "changed")
    model = ml.distil(tmp_path / "changed", tmp_path / "student", changes=QUICK)
    loaded = ml.Model.load(tmp_path / "student")
    for each in (model, loaded):
        assert each.predict(["quokka wombat"], k=1)[0][0].uid == "new"
        everything = each.predict(["some text"], k=61)[0]
        assert len(everything) == 60 and gone not in {label.uid for label in everything}


def test_the_memory_does_not_answer_with_the_row_itself(fused_run):
    model = ml.Model.load(fused_run)
    texts = list(model.train_rows.texts)[:50]
    own = [set(model.train_rows.targets[row].indices.tolist()) for row in range(50)]
    memory = model.fitted.heads["memory"]
    features = model.fitted.ngrams.encode(texts)
    assert memory.search(features, 1).scores.min() > 0.999
    assert memory._others(features).scores.max() < 0.999
    plain = memory.scores(features)
    assert np.mean([int(plain[row].toarray().argmax()) in own[row] for row in range(50)]) == 1


def test_answers_are_probabilities(fused_run):
    model = ml.Model.load(fused_run)
    rows = teacher_data(model, find_model(fused_run))
    answers = teach(model, rows.train.texts[:40], 7, calibrated(model, rows, lambda line: None))
    assert answers.shape == (40, 60) and np.diff(answers.indptr).max() <= 7
    assert answers.data.min() > 0 and answers.data.max() <= 1


def test_a_run_is_resumed_with_the_same_result(summed_run, stopped_after, tmp_path, monkeypatch):
    whole = ml.distil(summed_run, tmp_path / "whole", changes=QUICK)
    out = tmp_path / "run"
    stopped_after(5, lambda: ml.distil(summed_run, out, changes=QUICK))
    assert (out / "teacher").is_dir()
    with pytest.raises(DataError, match="started with another teacher"):
        ml.distil(summed_run, out, changes=QUICK, weight=0.9, resume=True)
    monkeypatch.setattr("megalabel.distiller.teach", None)  # the answers are those of the first part
    resumed = ml.distil(summed_run, out, changes=QUICK, resume=True)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name
    assert not (out / "teacher").exists()


def test_mistakes_are_one_line(summed_run, data, tmp_path):
    model = ml.Model.load(summed_run)
    model.save(tmp_path / "bare", texts=False)
    with pytest.raises(DataError, match=r"saved without its training texts.*--data D"):
        ml.distil(tmp_path / "bare", changes=QUICK)
    assert ml.distil(tmp_path / "bare", data=data, changes=QUICK).heads == ["labels"]
    other = ml.load("synthetic:points=200,labels=50")
    with pytest.raises(DataError, match="does not have the labels of the teacher"):
        ml.distil(summed_run, data=other, changes=QUICK)
    with pytest.raises(SettingError, match="one vector per label, which auto does not"):
        ml.distil(summed_run, recipe="auto")
    with pytest.raises(SettingError, match=r"scores groups too|one vector per label"):
        ml.distil(summed_run, recipe="inceptionxml-lf-cpu")
    for wrong, message in [({"weight": 2}, "weight must lie"), ({"top": 0}, "top must"), ({"least": 1}, "least must")]:
        with pytest.raises(SettingError, match=message):
            ml.distil(summed_run, **wrong)
    with pytest.raises(DataError, match="batch_size 1,024 is larger"):
        ml.distil(summed_run, changes=["batching.min_batches=null"])
