"""The commands of docs/use.md run as written, in order."""

import re
import shlex
from pathlib import Path

from megalabel.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "use.md"
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


def test_every_command_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed = {}
    for command in COMMANDS:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "megalabel"
        assert main(arguments) == 0, command
        printed[command] = capsys.readouterr().out
    assert len(COMMANDS) == 16
    (listed,) = (out for command, out in printed.items() if " labels list " in command)
    assert listed == "new  0  a better text for it\n"
