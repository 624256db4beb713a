"""``megalabel labels``: changes persist, and are made completely or not at all."""

import json
import subprocess
import sys

import pytest

import megalabel as ml


@pytest.fixture
def labels(call):
    return lambda *arguments: call("labels", *arguments)


def test_add_rename_remove_and_list(labels, folder):
    assert labels("add", folder, "--text", "zebra crossing", "--text", "yak") == (
        0, "added-40  zebra crossing\nadded-41  yak\n", "",
    )  # fmt: skip
    assert ml.Model.load(folder).predict(["zebra crossing"], 1, heads="dual")[0][0].uid == "added-40"
    assert labels("rename", folder, "added-40", "quiet street")[0] == 0
    assert labels("remove", folder, "added-41", "lbl-3")[:2] == (0, "2 removed, 40 labels left\n")
    assert labels("list", folder, "--find", "QUIET") == (0, "added-40  0  quiet street\n", "")
    code, out, _ = labels("list", folder, "--json")
    rows = json.loads(out)["labels"]
    assert code == 0
    assert [row["id"] for row in rows] == [*range(3), *range(4, 41)]
    code, out, err = labels("list", folder, "--limit", "2")
    assert (code, len(out.splitlines()), err) == (0, 2, "38 more\n")


def test_labels_are_named_by_uid_or_whole_text(labels, call, folder):
    assert labels("add", folder, "--text", "Zebra crossing", "--text", "yak", "--text", "yak")[2].splitlines() == [
        "added-41: another label, added-42, has the same text: yak",
        "added-42: another label, added-41, has the same text: yak",
    ]
    code, out, err = labels("remove", folder, "yak")
    assert (code, out) == (
        2,
        "",
    ) and "'yak' matches 2 labels: added-41 'yak', added-42 'yak'; give the uid of one" in err
    assert labels("remove", folder, "added-41")[:2] == (0, "1 removed, 42 labels left\n")
    assert labels("remove", folder, "zebra")[0] == 2  # a part could be of a label that nobody meant
    assert labels("rename", folder, "zebra crossing", "yak") == (
        0, "added-40  yak\n", "added-40: another label, added-42, has the same text: yak\n",
    )  # fmt: skip
    assert labels("remove", folder, "added-40")[0] == 0
    page = call("explain", folder, "--text", "a yak", "--label", "yak")[1]  # the one that is left
    assert page.startswith("yak  (added-42)\nrank ") and "added after training" in page
    assert labels("remove", folder, "yak")[:2] == (0, "1 removed, 40 labels left\n")
    code, _, err = call("explain", folder, "--text", "a yak", "--label", "yak")
    assert code == 2 and "no label has the uid, text or id 'yak'" in err and "did you mean 'yak'" not in err


def test_labels_from_a_file(labels, folder, tmp_path):
    path = tmp_path / "new.jsonl"
    path.write_text('{"uid": "a", "text": "zebra"}\n{"uid": "b", "text": "yak"}\n')
    code, out, _ = labels("add", folder, "--input", path, "--json")
    assert (code, json.loads(out)) == (0, {"added": [{"uid": "a", "text": "zebra"}, {"uid": "b", "text": "yak"}]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "RUN"], "no label to add; give --text or --input"),
        (["add", "RUN", "--text", " "], "a label must have a text"),
        (["add", "RUN", "--text", "a", "--uid", "lbl-3"], "duplicate uid 'lbl-3'"),
        (["add", "RUN", "--input", "FILE", "--text", "a"], "give either --text or --input, not both"),
        (["add", "RUN", "--input", "FILE"], 'new.jsonl:2: label without "text"'),
        (["remove", "RUN", "lbl-99"], "no label has the uid or text 'lbl-99'; did you mean"),
        (["rename", "RUN", "lbl-3", ""], "a label must have a text"),
        (["add", "nowhere", "--text", "a"], "nowhere: there is no model here"),
        (["list", "nowhere"], "nowhere: there is no model here"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(labels, folder, tmp_path, arguments, message):
    path = tmp_path / "new.jsonl"
    path.write_text('{"text": "zebra"}\n{"words": "yak"}\n')
    before = (folder / "model" / "model.json").read_bytes()
    code, out, err = labels(*({"RUN": folder, "FILE": path}.get(part, part) for part in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert (folder / "model" / "model.json").read_bytes() == before


def test_two_processes_at_once_lose_nothing(labels, folder):
    script = "import sys; from megalabel.__main__ import main; sys.exit(main(sys.argv[1:]))"
    texts = [f"zebra {number}" for number in range(4)]
    ask = [sys.executable, "-c", script, "labels", "add", str(folder), "--text"]
    processes = [subprocess.Popen([*ask, text], stdout=subprocess.DEVNULL) for text in texts]
    assert [process.wait() for process in processes] == [0] * 4
    rows = json.loads(labels("list", folder, "--find", "zebra", "--json")[1])["labels"]
    assert sorted(row["text"] for row in rows) == texts
