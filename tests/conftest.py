"""Shared by all tests: no network, no model hub, a cache of their own, repeatable hypothesis, the CPU."""

import os
from collections import Counter

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small tensors: threads would only wait for each other
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # set it to try tests/training/test_device.py on a real one
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["MEGALABEL_PROGRESS"] = "0"

settings.register_profile("megalabel", derandomize=True, deadline=None)
settings.load_profile("megalabel")


def pytest_terminal_summary(terminalreporter):
    """Say what was left out, and why."""
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, tests in reasons.items():
        terminalreporter.write_line(f"left out: {tests} tests ({reason.removeprefix('Skipped: ')})")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Keep the user's cache out of the tests, and the tests out of the user's cache."""
    os.environ["MEGALABEL_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def small():
    """Changes that make a recipe over bags train in a second: no file of tokens, small vectors, two epochs."""
    return [
        "encoder.source=null",
        "encoder.options={dim: 32, words: 1024, bigrams: 0, characters: 0}",
        "batching.batch_size=64",
        "batching.refresh={start: 1, every: 2}",
        "training.epochs=2",
    ]
