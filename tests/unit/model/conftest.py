import pytest

import megalabel as ml


@pytest.fixture(scope="session")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture(params=["fused", "summed"])
def run(request):
    """The folder of a trained run, not to be changed."""
    return request.getfixturevalue(f"{request.param}_run")


@pytest.fixture
def model(run):
    return ml.Model.load(run)
