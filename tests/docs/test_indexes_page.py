"""The commands of docs/indexes.md run as written, in order."""

import re
import shlex
from pathlib import Path

from megalabel.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "indexes.md"
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


def test_every_command_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 6
    printed = []
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        assert program == "megalabel"
        assert main(arguments) == 0, command
        printed.append(capsys.readouterr().out)
    assert all("recall@10" in printed[place] for place in (1, 2))
    assert printed[-1] == "1 dropped, search is exact\n"
