from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix


@pytest.fixture(scope="session")
def oracle():
    """The naive loops of tests/oracles/metrics.py."""
    path = Path(__file__).parents[2] / "oracles" / "metrics.py"
    spec = spec_from_file_location("metrics_oracle", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def golden():
    """Rankings, truth, train counts and points of the worked example."""
    truth = csr_matrix([[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 0, 0, 0, 0]])
    ids = np.array([[0, 1, 2], [2, 4, 1], [1, 3, 0]])
    return ids, truth, np.array([6, 3, 1, 1, 0]), 10
