import json

import pytest

from megalabel import load


def one_line(code, err):
    lines = err.strip().splitlines()
    return code == 2 and "Traceback" not in err and lines[-1].startswith("megalabel: ")


def test_list_names_sets_and_formats(run):
    code, out, _ = run("data", "list")
    assert code == 0
    assert all(word in out for word in ("pydocs", "synthetic", "xmc-json", "parquet"))
    document = json.loads(run("data", "list", "--json")[1])
    assert set(document) == {"builtin", "formats"}


def test_build_info_convert_and_back(run, tmp_path):
    code, out, err = run("data", "build", "synthetic:points=100,labels=20", "--out", "set")
    assert (code, out) == (0, "")
    assert "80 train and 20 test" in err
    for target in ("csv", "beir"):
        code, out, err = run("data", "convert", "set", target, "--to", target)
        assert code == 0, err
        assert "read as folder" in err
    code, out, err = run("data", "info", "csv", "--json")
    assert code == 0
    assert "read as csv" in err
    assert json.loads(out)["labels"] == 20
    assert "propensity" in run("data", "info", "set")[1].lower()
    first, last = load(tmp_path / "set"), load(tmp_path / "beir")
    assert list(first.test.texts) == list(last.test.texts)
    assert (first.train.targets != last.train.targets).nnz == 0


def test_existing_folder_is_left_alone(run, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine.txt").write_text("keep")
    code, _, err = run("data", "build", "synthetic:points=100,labels=20", "--out", "set")
    assert one_line(code, err)
    assert "--overwrite" in err
    assert (tmp_path / "set" / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "info", "pydoc"], "pydocs"),
        (["data", "info", "no/such/folder"], "no such file"),
        (["data", "info", "synthetic:pints=3"], "points"),
        (["data", "convert", "synthetic:points=50,labels=9", "x", "--to", "cvs"], "csv"),
        (["data", "build", "synthetic:points=many", "--out", "x"], "points"),
        (["data", "infos"], "info"),
        (["data", "info", "--colour"], "--colour"),
        (["nonsense"], "nonsense"),
    ],
)
def test_mistakes_are_one_line_and_code_2(call, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert one_line(code, err), err
    assert len(err.strip().splitlines()) == 1
    assert words in err
    assert out == ""
    assert not (tmp_path / "x").exists()


def test_version(run):
    import megalabel

    assert run("--version")[:2] == (0, f"megalabel {megalabel.__version__}\n")


def test_completion_can_be_shown(run):
    code, out, _ = run("--show-completion", "bash")
    assert code == 0
    assert "megalabel" in out or "complete" in out.lower()


def test_problems_are_said_and_shown(call, tmp_path):
    rows = "".join(f"text {i},{'r' if i % 2 else 'g'}\n" for i in range(20))
    (tmp_path / "t.csv").write_text("body,tags\n,r\nx,\n" + rows)
    columns = ["--text-column", "body", "--labels-column", "tags"]
    code, _, err = call("data", "convert", tmp_path / "t.csv", tmp_path / "set", *columns)
    assert code == 0
    for words in (
        "text from the column 'body'",
        "1 row has no text and is left out",
        "1 row has no label",
        "2 of 20 rows",
    ):
        assert words in err
    code, out, err = call("data", "convert", tmp_path / "t.csv", tmp_path / "other", *columns, "--strict")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith("t.csv:2: this row has no text; mend it, or leave out --strict")
    assert not (tmp_path / "other").exists()
    line = '{"uid": "x", "text": "text 1", "labels": []}\n'
    import gzip

    with gzip.open(tmp_path / "set" / "tst.jsonl.gz", "at") as out:
        out.write(line * 2)
    code, out, _ = call("data", "info", tmp_path / "set")
    assert code == 0
    assert "problems" in out and "2 rows of test have no label" in out and "the text of a train row" in out
    code, out, err = call("data", "convert", tmp_path / "set", tmp_path / "more", "--strict")
    assert code == 2 and "rows of test have no label" in err
