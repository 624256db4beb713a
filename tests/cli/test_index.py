"""``megalabel index``: built, measured, saved, used."""

import json
import re
import shutil

import pytest

import megalabel as ml
from megalabel.__main__ import main

SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0}",
    "batching.batch_size=64",
    "training.epochs=1",
]
DATA = "synthetic:points=200,labels=30,seed=5"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index") / "run"
    ml.train("unidec-cpu", ml.load(DATA), folder, changes=SMALL)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def call(capsys):
    def call(*arguments):
        code = main([*map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("kind", ["exact", "hnsw", "ivf"])
def test_one_line_says_what_was_measured(call, folder, kind):
    code, out, err = call("index", folder, "--kind", kind)
    assert (code, err) == (0, "")
    line = (
        rf"all: {kind}( \(\w+ \d+\))? over 30 labels: recall@10 [01]\.\d+ on \d+ queries, built in .* s, .* queries/s"
    )
    assert re.match(line, out) and len(out.splitlines()) == 1
    (built,) = ml.Model.load(folder).indexes.built
    assert built.told == out.removeprefix("all: ").strip()
    assert call("predict", folder, "--text", "some text")[0] == 0
    first, other = (
        json.loads(call("evaluate", folder, "--data", DATA, "--json", *more)[1]) for more in ([], ["--exact"])
    )
    assert first["metrics"] == other["metrics"]  # so few labels are always searched exactly


def test_auto_says_why(call, folder):
    code, out, _ = call("index", folder, "--searches", 10)
    assert code == 0 and "looking at every label" in out


def test_settings_queries_and_json(call, folder, tmp_path):
    path = tmp_path / "queries.txt"
    path.write_text("one\ntwo\nthree\n")
    arguments = [
        "--kind",
        "ivf",
        "--heads",
        "dual",
        "--queries",
        path,
        "--set",
        "nlist=6",
        "--set",
        "nprobe=2",
        "-k",
        3,
    ]
    code, out, err = call("index", folder, *arguments, "--json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)["index"]
    assert (found["heads"], found["kind"], found["k"], found["labels"]) == ("dual", "ivf", 3, 30)
    assert (found["settings"]["nlist"], found["settings"]["nprobe"]) == (6, 2)
    assert found["measured_on"] == "3 queries"


def test_labels_that_change_are_told_of_and_an_index_can_be_dropped(call, folder):
    call("index", folder, "--kind", "ivf")
    code, _, err = call("labels", "add", folder, "--text", "zebra crossing")
    assert code == 0
    assert err == "labels beside the index, looked at one by one in every search: 1; megalabel index puts them in\n"
    assert ml.Model.load(folder).predict(["zebra crossing"], 1, heads="dual")[0][0].uid == "added-30"
    assert call("index", folder, "--kind", "ivf")[0] == 0
    assert call("labels", "rename", folder, "added-30", "yak")[2].startswith("labels beside the index")
    assert call("index", folder, "--drop") == (0, "1 dropped, search is exact\n", "")
    assert not (folder / "model" / "index").exists()
    assert json.loads(call("index", folder, "--drop", "--json")[1]) == {"dropped": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "hnws"], "there is no index of kind 'hnws'; did you mean 'hnsw'"),
        (["--kind", "ivf", "--set", "M=4"], "an index of kind ivf has no setting 'M'"),
        (["--kind", "ivf", "--set", "nprobe"], "--set nprobe is no setting of an index; for example"),
        (["--kind", "ivf", "--set", "nprobe=few"], "--set nprobe=few is no setting"),
        (["--set", "nprobe=4"], "auto takes no nprobe; name the kind of index"),
        (["--at-least", "7"], "at_least must lie in 0 to 1, not 7"),
        (["--heads", "duel"], "did you mean 'dual'"),
        (["--queries", "nowhere.txt"], "nowhere.txt: no such file"),
        (["-k", "0"], "Invalid value for '-k'"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(call, trained, arguments, message):
    before = (trained / "model" / "model.json").read_bytes()
    code, out, err = call("index", trained, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert (trained / "model" / "model.json").read_bytes() == before


def test_no_model(call, tmp_path):
    assert call("index", tmp_path)[0] == 2
