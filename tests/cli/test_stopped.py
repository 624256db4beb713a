"""Trainings that are told to stop, killed, or started twice: nothing is lost, and `--resume` goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from megalabel.training.checkpoint import list_checkpoints

DATA = "synthetic:points=300,labels=40,seed=5"  # as the fixture trained


@pytest.fixture
def begin(settings):
    """Start a training in a process of its own, and wait until it has taken some steps."""
    started = []

    def begin(folder, *more, wait=True):
        command = [sys.executable, "-m", "megalabel", "train", "unidec-cpu", "--data", DATA, "--out", folder]
        command += [*settings("training.epochs=2000"), "--no-report", *more]
        environment = os.environ | {"MEGALABEL_PROGRESS": "0", "OMP_NUM_THREADS": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([*map(str, command)], text=True, env=environment, **pipes))
        deadline = time.monotonic() + 120
        while wait and not list_checkpoints(folder / "checkpoints" / "select"):
            assert started[-1].poll() is None, started[-1].communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_a_checkpoint_and_says_how_to_go_on(begin, tmp_path, number, code):
    folder = tmp_path / "run"
    process = begin(folder)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("stopped and saved; continue with: megalabel train unidec-cpu ")
    assert last.endswith("--resume")
    step = int((folder / "metrics.jsonl").read_bytes().splitlines()[-1].split(b":")[1].split(b",")[0])
    assert list_checkpoints(folder / "checkpoints" / "select")[0].name.endswith(f"-step-{step}")
    assert not list(folder.rglob("*.part"))


def test_a_second_training_in_the_same_folder_is_refused_at_once(begin, call, settings, tmp_path):
    folder = tmp_path / "run"
    first = begin(folder)
    for more in ([], ["--resume"]):
        command = ["train", "unidec-cpu", "--data", DATA, "--out", folder, *settings("training.epochs=2000"), *more]
        code, out, err = call(*command)
        last = err.strip().splitlines()[-1]
        assert (code, out) == (2, "")
        assert f"{folder}: another process trains in this folder (process {first.pid} since 20" in last
    assert first.poll() is None
    first.kill()
    first.communicate()
    again = begin(folder, "--resume", wait=False)  # the lock of a dead process is none
    newest = list_checkpoints(folder / "checkpoints" / "select")[0]
    deadline = time.monotonic() + 120
    while list_checkpoints(folder / "checkpoints" / "select")[0] == newest:
        assert again.poll() is None, again.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_torn_last_line_of_the_log_is_dropped(call, settings, folder, trained):
    shutil.rmtree(folder / "model")
    with (folder / "metrics.jsonl").open("ab") as log:
        log.write(b'{"step": 9, "pha')
    code, _, err = call("train", "unidec-cpu", "--data", DATA, "--out", folder, *settings(), "--resume")
    assert code == 0, err
    assert (folder / "metrics.jsonl").read_bytes() == (trained / "metrics.jsonl").read_bytes()
    one, other = (load_file(each / "model" / "heads.safetensors") for each in (folder, trained))
    assert all(torch.equal(one[name], other[name]) for name in other)
