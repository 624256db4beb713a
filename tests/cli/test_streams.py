"""Whatever becomes of its output, its error stream and its folder, a command ends with its code and no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

WAYS = [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "| true", "2>&1 | true"]


def shell(command, **options):
    line = f"set -o pipefail; {sys.executable} -m megalabel {command}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("command", "code"), [("--help", 0), ("data list --json", 0), ("nonsense", 2)])
def test_closed_and_broken_streams(command, code, way):
    done = shell(f"{command} {way}")
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
@pytest.mark.parametrize("command", ["data list", "nonsense"])
def test_nowhere_to_print(command):
    assert shell(f"{command} > /dev/full 2>&1").returncode == 2


@pytest.mark.parametrize("command", ["predict run --text a", "data build synthetic --out set", "index run"])
def test_a_folder_that_was_removed(tmp_path, command):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"rmdir {gone}; {sys.executable} -m megalabel {command}"
    done = subprocess.run(["bash", "-c", line], cwd=gone, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "megalabel: the current folder was removed; change to one that exists"
    assert "Traceback" not in done.stderr
