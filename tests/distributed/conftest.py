"""Start the processes of a run by hand, as torchrun would."""

import os
import socket
import subprocess
import sys

import pytest

LONGEST = 300.0  # seconds a test waits; the machine may be busy


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start_ranks():
    """Give a function that starts a Python program in as many processes as asked for; all are gone afterwards."""
    started = []

    def start(world, *arguments, **environment):
        shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **environment}
        ranks = [
            subprocess.Popen(
                [sys.executable, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(world)
        ]  # fmt: skip
        started.extend(ranks)
        return ranks

    yield start
    for rank in started:
        rank.kill()
        rank.communicate()


@pytest.fixture
def run_ranks(start_ranks):
    """Give a function that does the same, and waits until all have come to a good end."""

    def run(world, *arguments, **environment):
        ranks = start_ranks(world, *arguments, **environment)
        errors = [rank.communicate(timeout=LONGEST)[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(errors)
        return errors

    return run
