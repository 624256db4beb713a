"""Help is prose: it fills the lines of the terminal, whatever its width."""

from itertools import pairwise

import pytest
from typer.main import get_command

from megalabel.cli import app


def names(command, path=()):
    """Return the words of every command, groups included."""
    inner = getattr(command, "commands", {})
    return [path, *(deeper for name, sub in inner.items() for deeper in names(sub, (*path, name)))]


@pytest.mark.parametrize("width", [80, 120])
def test_help_fills_its_lines(call, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    commands = names(get_command(app))
    assert ("labels", "add") in commands and () in commands
    for command in commands:
        code, page, _ = call(*command, "--help")
        assert code == 0
        text = page.partition("Usage:")[2].partition("╭")[0]
        paragraphs = [part.splitlines() for part in "\n".join(map(str.rstrip, text.splitlines())).split("\n\n")]
        for line, following in (pair for lines in paragraphs for pair in pairwise(lines) if all(pair)):
            room = width - 1 - len(line)
            assert len(following.split()[0]) >= room, (command, line)
