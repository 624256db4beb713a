"""The commands of the tutorial run as written, in order, on real texts."""

import re
import shlex
from pathlib import Path

import pytest

from megalabel.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.mark.extra  # 18 s
def test_from_a_csv_to_predictions_in_ten_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 10
    printed = {}
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        assert program == "megalabel"
        assert main(arguments) == 0, command
        printed[command] = capsys.readouterr().out
    tables = tmp_path / "tutorial" / "tables"
    assert sorted(path.name for path in tables.glob("*.csv")) == ["labels.csv", "test.csv", "train.csv"]
    both = [re.search(r"^1 +([\d.]+)", printed[line], re.MULTILINE)[1] for line in COMMANDS if " evaluate " in line]
    assert len(both) == 2
    assert all(float(precision) > 50 for precision in both)
    for page in ("first/report.html", "second/report.html", "compare.html"):
        assert "</html>" in (tmp_path / "tutorial" / page).read_text()
    predicted = printed[COMMANDS[-1]].splitlines()
    assert predicted[0] == "inverse of a square matrix"
    assert len(predicted) == 4
    assert "inv" in printed[COMMANDS[-1]].partition("\n")[2]
