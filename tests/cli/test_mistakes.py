"""Mistakes of any kind on the command line: exit code 2 and one line, never a traceback, never waiting."""

import subprocess
import sys
from pathlib import Path

import pytest

from megalabel.__main__ import main

DATA = "synthetic:points=300,labels=40,seed=5"  # as the fixture trained


def check(result):
    """Return the last line of a command that was refused."""
    code, _, err = result
    assert code == 2, err
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("megalabel: ")
    return last


@pytest.mark.parametrize("seed", ["-5", str(2**64), "x", "1.5", "9" * 6_000])
def test_seeds(call, tmp_path, seed):
    out = tmp_path / "out"
    assert "seed" in check(call("train", "unidec-cpu", "--data", DATA, "--out", out, "--seed", seed))
    assert "seed" in check(call("data", "info", DATA, "--seed", seed))
    assert "seed" in check(call("train", "unidec-cpu", "--data", DATA, "--out", out, "--set", f"seed={seed}"))
    assert not out.exists()


def test_largest_seed_trains(call, settings, tmp_path):
    arguments = ("--seed", str(2**63 - 1), "--no-report", *settings("training.epochs=1"))
    assert call("train", "unidec-cpu", "--data", DATA, "--out", tmp_path / "run", *arguments)[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:\n" + "".join(" " * depth + "a:\n" for depth in range(1, 3_000)), "nested"),
        ("[" * 3_000, "nested"),
        (f"name: x\nseed: {'7' * 6_000}\n", "recipe.yaml:2: a number of 6,000 digits is too long"),
        ("name: x\nname: y\n", "recipe.yaml:2: this is not YAML (duplicate key 'name')"),
    ],
)
def test_recipes(call, tmp_path, text, words):
    (tmp_path / "recipe.yaml").write_text(text)
    arguments = ("--data", DATA, "--out", tmp_path / "out")
    assert words in check(call("train", tmp_path / "recipe.yaml", *arguments))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: 9 bytes"
        ),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
        MemoryError(),
    ],
)
def test_no_memory(call, tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("megalabel.trainer.train_rank", fail)
    last = check(call("train", "unidec-cpu", "--data", DATA, "--out", tmp_path / "run"))
    assert last.startswith("megalabel: out of memory; set a smaller batching.batch_size")


def test_other_errors_stay_bugs(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("megalabel.trainer.train_rank", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["train", "unidec-cpu", "--data", DATA, "--out", str(tmp_path / "run")])


def test_paths_that_no_system_call_takes(call, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert "too long" in check(call("explain", "x" * 300, "--text", "x"))
    assert "symlink loop" in check(call("data", "convert", DATA, tmp_path / "loop"))
    assert "no such file or folder" in check(call("data", "info", tmp_path / "loop", "--from", "xmc-json"))


def test_a_choice_that_is_none(call, tmp_path):
    told = check(call("export", tmp_path, "--to", "pdf", "--out", tmp_path / "out"))
    assert "Value error" not in told and "'pdf' is not one of 'sentence-transformers', 'onnx', 'hub'" in told


def test_output_that_takes_nothing():
    command = [sys.executable, "-m", "megalabel", "data", "list"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "megalabel: no space left on device\n")
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")
