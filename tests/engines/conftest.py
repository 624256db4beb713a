"""A real PostgreSQL with pgvector, and LanceDB; tests/packaging/test_engines.py runs this folder where they are."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import megalabel as ml
from megalabel.__main__ import main

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def running(*arguments, **options):
    """Start a server; its module needs packages that are not always there."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return import_module("_peers.postgres").running(*arguments, **options)
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="session")
def postgres():
    with running(settings=("-c", "fsync=off")) as server:
        yield server


@pytest.fixture(scope="session")
def new_server():
    return running


@pytest.fixture
def own_postgres(monkeypatch):
    """A server that a test may kill; it keeps what it has acknowledged."""
    with running() as server:
        monkeypatch.setenv("MEGALABEL_PG_URL", server.url)
        yield server


@pytest.fixture(params=["pgvector", "lancedb"])
def kind(request):
    return request.param


@pytest.fixture
def place(kind, request, tmp_path, monkeypatch):
    """The URL of an engine with nothing in it."""
    if kind == "lancedb":
        return str(tmp_path / "lance")
    server = request.getfixturevalue("postgres")
    for (name,) in server.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        server.run(f'DROP TABLE "{name}"')
    monkeypatch.setenv("MEGALABEL_PG_URL", server.url)
    return server.url


@pytest.fixture
def call(capsys):
    """Run a command in this process; return (exit code, stdout, stderr)."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def command():
    """Run a command in a process of its own; return (exit code, stdout, stderr)."""

    def command(*arguments, before=None, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "megalabel", *map(str, arguments)], capture_output=True, text=True, check=False,
            env=os.environ | environment, preexec_fn=before,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return command


@pytest.fixture(scope="session")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture
def folder(summed_run, tmp_path):
    """A copy of a run whose model adds up scores."""
    return shutil.copytree(summed_run, tmp_path / "run")


@pytest.fixture(scope="session")
def vectors():
    return clustered(3_000, 24, 0)


def clustered(count, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(50, dim, generator=torch.Generator().manual_seed(1))
    return centres[torch.randint(50, (count,), generator=generator)] + 0.5 * torch.randn(
        count, dim, generator=generator
    )


@pytest.fixture(scope="session")
def queries():
    return clustered(100, 24, 2)
