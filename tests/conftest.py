"""Shared by all tests: no network, no model hub, a separate cache, repeatable hypothesis, CPU only."""

import fcntl
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


# Folders and files whose tests take longest run first, so that no worker is left with them at the end.
LONGEST = ("tests/distributed/", "tests/recipes/", "tests/training/", "tests/docs/", "tests/cli/", "tests/browser/")


def pytest_collection_modifyitems(items):
    """Run the longest tests first; all others keep their order."""

    def place(item):
        return next((i for i, start in enumerate(LONGEST) if item.nodeid.startswith(start)), len(LONGEST))

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter):
    """Say what was left out, and why; and which faults were injected."""
    _count_faults(terminalreporter)
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, tests in reasons.items():
        terminalreporter.write_line(f"left out: {tests} tests ({reason.removeprefix('Skipped: ')})")


def _count_faults(terminalreporter):
    """Print the faults of tests/faults that nothing was lost by, by writer and kind."""
    writers = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, (writer, counts) in (each for each in report.user_properties if each[0] == "faults"):
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
            terminalreporter.write_line(f"{name} survived: {writer}: {sum(counts.values()):,} ({kinds})")
            writers[writer] += sum(counts.values())
    if writers:
        terminalreporter.write_line(f"faults survived: {writers.total():,} over {len(writers)} writers, lost: 0")


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


@pytest.fixture
def stopped_after(monkeypatch):
    """Return ``run(steps, start)``: it calls ``start`` and stops the training in it after so many steps.

    With ``every_step``, a checkpoint is written after every step, not only where the recipe has one.
    """
    from megalabel.training.loop import Loop

    def run(steps, start, every_step=True):
        plain, taken = Loop._step, []

        def cut_off(self, *arguments):
            if len(taken) == steps:
                raise KeyboardInterrupt
            taken.append(self.step)
            return plain(self, *arguments)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Loop, "_step", cut_off)
            if every_step:
                patch.setattr("megalabel.training.phase.CHECKPOINT_SECONDS", 0.0)
            start()

    return run


def _train_once(factory, name, recipe, data, changes):
    """Return a run folder that the first xdist worker trains and all workers share."""
    import megalabel as ml

    shared = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "model").exists():
            ml.train(recipe, ml.load(data), folder, changes=changes)
    return folder


@pytest.fixture(scope="session")
def served_data():
    """The name of the data set of the shared runs."""
    return "synthetic:points=500,labels=60,seed=5"


@pytest.fixture(scope="session")
def fused(small):
    """The changes of ``fused_run``: `auto` with every kind of head, small."""
    return [
        *small,
        "ngrams={words: 1024, bigrams: 1024, characters: 0}",
        "heads.classifier.bias=true",
        "heads.memory.labels=self",
        "heads.vectors={kind: memory, features: classifier}",
        "heads.linear={kind: linear, labels: gandalf, max_targets: 5}",
        "predict={weights: fusion, candidates: 20}",
        "training.evaluate_every=1",
    ]


@pytest.fixture(scope="session")
def fused_run(served_data, fused, tmp_path_factory):
    """A run of `auto`, refitted, with a fused model of every kind of head; copy it before changing it."""
    return _train_once(tmp_path_factory, "fused-run", "auto", served_data, fused)


@pytest.fixture(scope="session")
def summed_run(served_data, small, tmp_path_factory):
    """A run of `unidec-cpu` with a model that adds up the scores of its heads; copy it before changing it.

    Its labels are text with a free correction in one head, free vectors with a bias in the other.
    """
    dual = "{kind: text_free, query_matrix: true, loss: decoupled_softmax, weight: 0.5}"
    changes = [f"heads.dual={dual}", "heads.classifier.bias=true", "heads.classifier.normalise=false"]
    return _train_once(tmp_path_factory, "summed-run", "unidec-cpu", served_data, [*small, *changes])
