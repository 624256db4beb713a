"""``megalabel graph``: both lists, labels by any name, and mistakes in one line."""

import json

import pytest

from megalabel.__main__ import main
from megalabel.cli._find_label import find_label
from megalabel.data.dataset import Dataset, Labels
from megalabel.data.save import save
from megalabel.errors import SettingError

TEXTS = ["red shoe", "Blue shoe", "green hat", "lonely glove"]
ROWS = [("a", [0, 1]), ("b", [0, 2]), ("c", [0, 1]), ("d", [2]), ("e", [0]), ("f", [3])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "set"
    save(Dataset.from_lists(ROWS, [("x", [0])], TEXTS), path)
    return path


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        code = main(["graph", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_both_ways_with_bars_and_counts(run, folder):
    code, out, _ = run(folder, "--label", "red shoe")
    assert code == 0
    assert out.splitlines() == [
        "red shoe  (label 0, 4 training points)",
        "",
        "Targets of its text:",
        "  0.50 ████████████             2  Blue shoe",
        "  0.25 ██████                   2  green hat",
        "",
        "Labels whose text has it as a target:",
        "  1.00 ████████████████████████ 2  Blue shoe",
        "  0.50 ████████████             2  green hat",
    ]


def test_json_k_and_delta(run, folder):
    code, out, _ = run(folder, "--label", "0", "-k", "1", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["targets"] == [{"id": 1, "uid": "lbl-1", "text": "Blue shoe", "points": 2, "weight": 0.5}]
    assert (document["neighbours"], document["neighbour_of"], document["points"]) == (2, 2, 4)
    assert json.loads(run(folder, "--label", "0", "--delta", "0.25", "--json")[1])["neighbours"] == 1
    assert "and 1 more" in run(folder, "--label", "0", "-k", "1")[1]
    assert ": none" in run(folder, "--label", "lonely")[1]


def test_walk_save_and_load(run, folder, tmp_path):
    code, out, err = run(folder, "--graph", "walk", "--out", tmp_path / "w.npz")
    assert (code, out) == (0, "")
    assert "4 labels" in err
    walked = run(folder, "--graph", "walk", "--label", "0")[1]
    assert run(folder, "--load", tmp_path / "w.npz", "--label", "0")[1] == walked
    assert "green hat" in walked


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--label", "red shoo"], "did you mean 'red shoe'"),
        (["--label", "zzzz"], "no label"),
        (["--label", "shoe"], "2 labels: 0 'red shoe', 1 'Blue shoe'"),
        (["--label", " "], "empty"),
        (["--label", "0", "--delta", "1"], "[0, 1)"),
        (["--label", "0", "--delta", "-0.5"], "[0, 1)"),
        (["--label", "0", "--graph", "walks"], "did you mean 'walk'"),
        (["--label", "0", "--load", "x.npz", "--delta", "0.2"], "drop --load"),
        (["--label", "0", "--load", "no.npz"], "no such file"),
        (["--label", "0", "-k", "0"], "-k"),
        ([], "--label"),
    ],
)
def test_mistakes_are_one_line_and_code_2(run, folder, arguments, words):
    code, out, err = run(folder, *arguments)
    assert (code, out) == (2, "")
    last = err.strip().splitlines()[-1]
    assert last.startswith("megalabel: ")
    assert words in last


def test_bad_sets(run, tmp_path, folder):
    save(Dataset.from_lists([("a", [0]), ("b", [1])], [("x", [0])], ["one", "two"]), tmp_path / "apart")
    code, _, err = run(tmp_path / "apart", "--label", "0")
    assert code == 2
    assert "the graph is empty" in err
    save(Dataset.from_lists(ROWS, [("x", [0])], [""] * 4), tmp_path / "mute")
    code, _, err = run(tmp_path / "mute", "--label", "0")
    assert code == 2
    assert "have no text" in err
    run(folder, "--out", tmp_path / "g.npz")
    code, _, err = run(tmp_path / "apart", "--label", "0", "--load", tmp_path / "g.npz")
    assert code == 2
    assert "another data set: it has 4 labels, the data set has 2" in err
    save(Dataset.from_lists(ROWS, [("x", [0])], [*TEXTS[:3], "glove"]), tmp_path / "near")
    code, _, err = run(tmp_path / "near", "--label", "0", "--load", tmp_path / "g.npz")
    assert code == 2
    assert "hash" in err


def test_label_by_uid_text_number_case_and_part():
    labels = Labels(["Ångström", "7", "red hat", "Red Hat", "x ray"], ["a", "b", "2", "d", "e"])
    names = {"a": 0, "2": 2, "7": 1, "4": 4, "ÅNGSTRÖM": 0, "red hat": 2, "ray": 4}
    assert {name: find_label(name, labels) for name in names} == names
    with pytest.raises(SettingError, match=r"matches 2 labels: 2 'red hat', 3 'Red Hat'; give the id"):
        find_label("RED HAT", labels)
