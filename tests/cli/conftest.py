"""Shared by the tests of the command line: two ways to run a command, and one trained run."""

import os
import shutil
import subprocess
import sys

import pytest

from megalabel.__main__ import main

DATA = "synthetic:points=300,labels=40,seed=5"


@pytest.fixture
def run(tmp_path):
    """Run the real command in its own process; return (exit code, stdout, stderr)."""

    def run(*arguments, cwd=tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "megalabel", *map(str, arguments)],
            cwd=cwd,
            capture_output=True,
            text=True,
            env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def call(capsys):
    """Run a command in this process; return (exit code, stdout, stderr)."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def settings(small):
    """Return the --set options of a small recipe, with further changes."""
    return lambda *changes: [part for change in (*small, *changes) for part in ("--set", change)]


@pytest.fixture(scope="session")
def trained(settings, tmp_path_factory):
    """The folder of a run of unidec-cpu, trained by the command line on DATA; do not change it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "unidec-cpu", "--data", DATA, "--out", str(folder), "--keep-checkpoints", *settings()]) == 0
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of the trained run that a test may change."""
    return shutil.copytree(trained, tmp_path / "run")
