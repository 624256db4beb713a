"""Rows of a study: existing rows are kept, missing ones are run once and written."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
rows = import_module("_rows")
sys.path.remove(str(BENCHMARKS))

SCRIPT = """
import json, sys
from pathlib import Path
request = json.loads(sys.argv[1])
with Path(__file__).with_suffix(".log").open("a") as log:
    log.write(request["way"] + "\\n")
if request["way"] == "bad":
    sys.exit("it broke")
Path(sys.argv[2]).write_text(json.dumps({**request, "data": Path(request["data"]).name, "value": 7}))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_row_runs_once(tmp_path, script):
    path, row = tmp_path / "deep" / "study.json", rows.Row("short", "dexml-cpu", ("training.epochs=1",))
    for way in ("one", "one", "two"):
        actual = rows.row_of(path, row, "some/set", 3, str(script), way=way)
        assert (actual["data"], actual["seed"], actual["way"], actual["value"]) == ("set", 3, way, 7)
    assert script.with_suffix(".log").read_text().split() == ["one", "two"]
    assert [one["way"] for one in rows.rows_there(path)] == ["one", "two"]
    assert json.loads(path.read_text())["machine"]["cores"] >= 1
    assert rows.is_of(actual, rows.key_of(row, "elsewhere/set", 3))
    for other in (rows.key_of(row, "some/set", 4), rows.key_of(rows.Row("short", "dexml-cpu"), "some/set", 3)):
        assert not rows.is_of(actual, other)


def test_a_row_that_fails_is_named_and_not_kept(tmp_path, script):
    with pytest.raises(SystemExit, match=r"(?s)short failed: exit code 1.*it broke"):
        rows.row_of(tmp_path / "study.json", rows.Row("short", "dexml-cpu"), "set", 0, str(script), way="bad")
    assert rows.rows_there(tmp_path / "study.json") == []


def test_studies_side_by_side_keep_each_others_rows(tmp_path, script):
    path, row = tmp_path / "study.json", rows.Row("short", "dexml-cpu")
    script.write_text(
        SCRIPT
        + f"""
sys.path.insert(0, {str(BENCHMARKS)!r})
from _rows import add_row
add_row(Path({str(path)!r}), {{"way": "other"}})
"""
    )
    rows.row_of(path, row, "some/set", 0, str(script), way="mine")
    assert [one["way"] for one in rows.rows_there(path)] == ["other", "mine"]
