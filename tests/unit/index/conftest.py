"""Vectors similar to trained ones: labels in groups, queries near their group."""

import pytest
import torch


def clustered(labels, dim, queries, *, seed=0, groups=None, lengths=0.0):
    """Return label vectors [L, d], lengths spread by exp(lengths x normal), and query vectors."""
    generator = torch.Generator().manual_seed(seed)
    groups = groups or max(1, labels // 30)
    centres = torch.nn.functional.normalize(torch.randn(groups, dim, generator=generator), dim=1)
    vectors = centres[torch.randint(groups, (labels,), generator=generator)]
    vectors = vectors + 0.5 / dim**0.5 * torch.randn(labels, dim, generator=generator)
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    asked = vectors[torch.randint(labels, (queries,), generator=generator)]
    asked = asked + 0.3 / dim**0.5 * torch.randn(queries, dim, generator=generator)
    return vectors * torch.exp(lengths * torch.randn(labels, 1, generator=generator)), asked


@pytest.fixture(scope="session")
def make():
    return clustered
