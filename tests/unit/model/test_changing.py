"""A saved model is changed by one process at a time."""

import subprocess
import sys
import time

import pytest

from megalabel.errors import WriteError
from megalabel.model.changing import changing

HOLD = """
import sys, time
from megalabel.model.changing import changing
with changing(sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def hold():
    """Hold a model in another process."""
    started = []

    def hold(place, seconds):
        started.append(subprocess.Popen([sys.executable, "-c", HOLD, place, str(seconds)], stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"held\n"
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_process_waits(hold, tmp_path):
    said = []
    hold(tmp_path / "model", 1.5)
    with changing(tmp_path / "model", said.append):
        pass
    assert [line.startswith("waiting: another process is changing this model (process ") for line in said] == [True]


def test_waiting_ends_after_the_patience(hold, tmp_path):
    hold(tmp_path / "model", 60)
    with pytest.raises(WriteError, match="another process is changing this model") as caught, changing(
        tmp_path / "model", patience=0.1
    ):  # fmt: skip
        pass
    assert "wait until it is done" in str(caught.value) and str(tmp_path / "model") in str(caught.value)


def test_a_killed_process_releases_the_lock(hold, tmp_path):
    hold(tmp_path / "model", 60).kill()
    start = time.monotonic()
    with changing(tmp_path / "model"):
        assert time.monotonic() - start < 10


def test_an_error_releases_the_lock(tmp_path):
    with pytest.raises(ZeroDivisionError), changing(tmp_path / "model"):
        raise ZeroDivisionError
    with changing(tmp_path / "model", patience=0.1):
        pass


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot be locked"), changing(tmp_path / "file" / "model", patience=0.1):
        pass
