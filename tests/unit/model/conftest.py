import pytest

import megalabel as ml

FUSED = [
    "ngrams={words: 1024, bigrams: 1024, characters: 0}",
    "fitted={near: {kind: memory, labels: self}, space: {kind: memory, of: classifier}, "
    "linear: {kind: linear}, named: {kind: overlap, side: label}, naming: {kind: overlap, side: query}}",
    "heads.classifier.bias=true",
    "predict={weights: fusion, candidates: 20}",
]


@pytest.fixture(scope="session")
def data():
    return ml.load("synthetic:points=500,labels=60,seed=5")


@pytest.fixture(scope="session")
def fused_run(data, small, tmp_path_factory):
    """Every kind of head, fused."""
    folder = tmp_path_factory.mktemp("fused") / "run"
    ml.train("unidec-cpu", data, folder, changes=[*small, *FUSED])
    return folder


@pytest.fixture(scope="session")
def summed_run(data, small, tmp_path_factory):
    """Heads whose scores are added: text + free, and free with a bias."""
    folder = tmp_path_factory.mktemp("summed") / "run"
    changes = [*small, "heads.dual.tower=text+free", "heads.classifier.bias=true", "heads.classifier.normalise=false"]
    ml.train("unidec-cpu", data, folder, changes=changes)
    return folder


@pytest.fixture(params=["fused", "summed"])
def run(request):
    """The folder of a trained run, not to be changed."""
    return request.getfixturevalue(f"{request.param}_run")


@pytest.fixture
def model(run):
    return ml.Model.load(run)
