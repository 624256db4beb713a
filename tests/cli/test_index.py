"""``megalabel index`` builds, measures and saves an index, and other commands use it."""

import json
import re
import sys

import pytest

import megalabel as ml

DATA = "synthetic:points=300,labels=40,seed=5"


@pytest.mark.parametrize("kind", ["exact", "hnsw", "ivf"])
def test_one_line_shows_the_measurements(call, folder, kind):
    code, out, err = call("index", folder, "--kind", kind)
    assert (code, err) == (0, "")
    line = (
        rf"all: {kind}( \(\w+ \d+\))? over 40 labels: recall@10 [01]\.\d+ on \d+ queries, built in .* s, .* queries/s"
    )
    assert re.match(line, out) and len(out.splitlines()) == 1
    (built,) = ml.Model.load(folder).indexes.built
    assert built.summary == out.removeprefix("all: ").strip()
    assert call("predict", folder, "--text", "some text")[0] == 0
    first, other = (
        json.loads(call("evaluate", folder, "--data", DATA, "--json", *more)[1]) for more in ([], ["--exact"])
    )
    assert first["metrics"] == other["metrics"]  # so few labels are always searched exactly


def test_auto_gives_a_reason(call, folder):
    code, out, _ = call("index", folder, "--searches", 10)
    assert code == 0 and "looking at every label" in out


def test_settings_queries_and_json(call, folder, tmp_path):
    path = tmp_path / "queries.txt"
    path.write_text("one\ntwo\nthree\n")
    options = ["--kind", "ivf", "--heads", "dual", "--set", "nlist=6", "--set", "nprobe=2", "-k", 3]
    code, out, err = call("index", folder, *options, "--queries", path, "--json")
    assert (code, err) == (0, "")
    (index,) = json.loads(out)["index"]
    assert (index["heads"], index["kind"], index["k"], index["labels"]) == ("dual", "ivf", 3, 40)
    assert (index["settings"]["nlist"], index["settings"]["nprobe"]) == (6, 2)
    assert index["measured_on"] == "3 queries"


def test_changed_labels_are_reported_and_an_index_can_be_dropped(call, folder):
    call("index", folder, "--kind", "ivf")
    code, _, err = call("labels", "add", folder, "--text", "zebra crossing")
    assert code == 0
    assert err == (
        "labels not yet in the index, scored one by one in every search: 1; run megalabel index to add them\n"
    )
    assert ml.Model.load(folder).predict(["zebra crossing"], 1, heads="dual")[0][0].uid == "added-40"
    assert call("index", folder, "--kind", "ivf")[0] == 0
    assert call("labels", "rename", folder, "added-40", "yak")[2].startswith("labels not yet in the index")
    assert call("index", folder, "--drop") == (0, "1 dropped, search is exact\n", "")
    assert not (folder / "model" / "index").exists()
    assert json.loads(call("index", folder, "--drop", "--json")[1]) == {"dropped": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "hnws"], "there is no index of kind 'hnws'; did you mean 'hnsw'"),
        (["--kind", "ivf", "--set", "M=4"], "an index of kind ivf has no setting 'M'"),
        (["--kind", "ivf", "--set", "nprobe"], "invalid index setting --set nprobe; for example"),
        (["--kind", "ivf", "--set", "nprobe=few"], "invalid index setting --set nprobe=few"),
        (["--set", "nprobe=4"], "auto takes no nprobe; name the kind of index"),
        (["--at-least", "7"], "at_least must lie in 0 to 1, not 7"),
        (["--heads", "duel"], "did you mean 'dual'"),
        (["--queries", "nowhere.txt"], "nowhere.txt: no such file"),
        (["-k", "0"], "Invalid value for '-k'"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(call, folder, arguments, message):
    before = (folder / "model" / "model.json").read_bytes()
    code, out, err = call("index", folder, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert (folder / "model" / "model.json").read_bytes() == before


def test_no_model(call, tmp_path):
    assert call("index", tmp_path)[0] == 2


@pytest.mark.parametrize(("kind", "package"), [("pgvector", "psycopg"), ("lancedb", "lancedb")])
def test_an_engine_without_its_package_is_one_line(call, folder, kind, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    place = tmp_path / "lance" if kind == "lancedb" else "postgresql://host/labels"
    code, out, err = call("index", folder, "--kind", kind, "--url", place)
    assert (code, out) == (2, "")
    assert f"an index of kind {kind} needs the package {package}; pip install 'megalabel[{kind}]'\n" in err
    code, _, err = call("index", folder, "--kind", "ivf", "--table", "labels")
    assert code == 2 and err.endswith("an index of kind ivf has no table; leave it out\n")
