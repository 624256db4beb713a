import shutil
from collections.abc import Sequence

import pytest

import megalabel as ml
from megalabel.report import write_report
from megalabel.report.evaluate_run import evaluate_run

DATA = "synthetic:points=300,labels=40,seed=5"
SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0}",
    "batching.batch_size=64",
    "batching.refresh={start: 1, every: 2}",
]
NASTY = (
    "<script>alert(1)</script>", "</style><b>", '" onload="x', "a & b", "$x^2$ _y", "\x00\x1b[31m\ud800", "عربي",
)  # fmt: skip


def nasty(texts: Sequence[str]) -> list[str]:
    return [f"{NASTY[place % len(NASTY)]} {text}" for place, text in enumerate(texts)]


@pytest.fixture(scope="session")
def clean():
    return ml.load(DATA)


@pytest.fixture(scope="session")
def data(clean):
    """The same set with texts that would break a careless page."""
    labels = ml.Labels(nasty(clean.labels.texts), clean.labels.uids)
    test = ml.Split(nasty(clean.test.texts), clean.test.targets, clean.test.uids, clean.test.filter)
    return clean.replace(labels=labels, test=test, name="<i>set</i>")


@pytest.fixture(scope="session")
def runs(tmp_path_factory, clean, data):
    """Two finished run folders and their models, the second with another loss and a refit."""
    folder = tmp_path_factory.mktemp("runs")
    changes = {
        "first": ["training.epochs=3"],
        "second": ["training.epochs=2", "heads.dual.loss.kind=softmax", "training.refit=true"],
    }
    models = {}
    for name, more in changes.items():
        model = ml.train("unidec-cpu", clean, folder / name, changes=[*SMALL, *more])
        model.labels = data.labels
        models[folder / name] = model
    return models


@pytest.fixture(scope="session")
def reported(runs, data, tmp_path_factory):
    """A copy of the first run with its report."""
    folder, model = next(iter(runs.items()))
    copy = shutil.copytree(folder, tmp_path_factory.mktemp("reported") / "run")
    write_report(copy, model, data)
    return copy


@pytest.fixture
def run(reported, tmp_path):
    """A run with a report that a test may change."""
    return shutil.copytree(reported, tmp_path / "mine")


@pytest.fixture(scope="session")
def results(runs, data):
    return [evaluate_run(folder, model, data, name=f"<{folder.name}>") for folder, model in runs.items()]


@pytest.fixture(scope="session")
def fused(tmp_path_factory):
    """A folder with a fused run, its model and its data."""
    data = ml.load("synthetic:points=700,labels=60,seed=5")
    more = [
        "training.epochs=2",
        "ngrams={words: 1024, bigrams: 1024, characters: 0}",
        "heads.near={kind: memory, neighbours: 10}",
        "heads.linear={kind: linear, mined: 20, uniform: 5, rounds: 1}",
        "predict={weights: fusion, candidates: 20}",
    ]
    folder = tmp_path_factory.mktemp("fused") / "run"
    return folder, ml.train("unidec-cpu", data, folder, changes=[*SMALL, *more]), data


@pytest.fixture(scope="session")
def fused_results(fused):
    folder, model, data = fused
    return evaluate_run(folder, model, data, name="<fused>")
