"""Ctrl-C in a real process: it saves and prints how to resume, and the resumed run ends with the same result."""

import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from megalabel.__main__ import main
from megalabel.training.run_log import read_log

TRAIN = [
    "train", "unidec-cpu", "--data", "synthetic:points=500,labels=60,seed=5", "--seed", "3",
    "--set", "encoder.source=null",
    "--set", "encoder.options={dim: 32, words: 1024, bigrams: 0, characters: 0}",
    "--set", "batching.batch_size=32",
    "--set", "batching.refresh={start: 1, every: 2}",
    "--set", "training.epochs=4",
]  # fmt: skip
COMMAND = [sys.executable, "-m", "megalabel"]
LONGEST = 60.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights of an undisturbed run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main([*TRAIN, "--out", str(folder)]) == 0
    return weights(folder)


def environment():
    shown = {name: value for name, value in os.environ.items() if name != "MEGALABEL_PROGRESS"}
    return shown | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}


def weights(folder):
    model = folder / "model"
    return load_file(model / "heads.safetensors") | load_file(model / "encoders" / "encoder" / "bag.safetensors")


def wait_for_steps(folder, steps):
    """Wait until the run has written so many steps."""
    log, end = folder / "metrics.jsonl", time.monotonic() + LONGEST
    while not log.is_file() or sum("loss" in row for row in read_log(log)) < steps:
        assert time.monotonic() < end, "the run did not start"
        time.sleep(0.005)


class Terminal(threading.Thread):
    """Read all that is written to a terminal until its last user is gone."""

    def __init__(self, source):
        super().__init__(daemon=True)
        self.source, self.actual = source, b""

    def run(self):
        with contextlib.suppress(OSError):  # Linux tells the end of a terminal this way
            while part := os.read(self.source, 65536):
                self.actual += part

    def said(self):
        self.join(LONGEST)
        os.close(self.source)
        return self.actual.decode(errors="replace").replace("\r\n", "\n")


def go_on(said, folder, whole):
    """Run the command the user was told, word for word, and compare weights."""
    line = re.search(r"stopped and saved; continue with: (megalabel train .* --resume)", said)
    assert line, said
    name, *arguments = shlex.split(line[1])
    assert name == "megalabel"
    assert main(arguments) == 0
    actual = weights(folder)
    assert actual.keys() == whole.keys()
    assert all(torch.equal(actual[key], value) for key, value in whole.items())


def test_on_a_terminal(whole, tmp_path):
    """The terminal itself turns the key into a signal, as it does for a person."""
    ours, theirs = pty.openpty()
    folder = tmp_path / "my run"
    process = subprocess.Popen(
        [*COMMAND, *TRAIN, "--out", str(folder)], stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment(), start_new_session=True, preexec_fn=own_terminal,
    )  # fmt: skip
    os.close(theirs)
    terminal = Terminal(ours)
    terminal.start()
    wait_for_steps(folder, 20)
    os.write(ours, b"\x03")
    said = terminal.said()
    assert process.wait(LONGEST) == 130, said
    assert "Traceback" not in said
    assert "epoch" in said
    assert said.rfind("\x1b[?25h") > said.rfind("\x1b[?25l") > 0  # the cursor was hidden, and shown again
    assert not (folder / "model").exists()
    go_on(said, folder, whole)


def own_terminal():
    """Make standard input the terminal that controls this process."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_without_a_terminal(whole, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, *TRAIN, "--out", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    wait_for_steps(folder, 20)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=LONGEST)
    assert (process.returncode, out) == (130, "")
    assert "\x1b" not in said
    assert "\r" not in said
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("stopped and saved; continue with: megalabel train ")
    go_on(said, folder, whole)
