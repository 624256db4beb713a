"""The "one easy positive" set of Gupta et al. 2024, Figure 2, with a trained bag of tokens.

Each query has five positives; one of them shares a rare token with the query and is
therefore easy. Softmax wants all five equally probable and in the end gives the easy one
up; decoupled softmax keeps it on top.
"""

import pytest
import torch

from megalabel.losses import DecoupledSoftmax, Softmax, streamed
from megalabel.types import Targets

QUERIES, POSITIVES, DIM = 128, 5, 64
LABELS = QUERIES * POSITIVES


def dataset():
    """Two tokens per text: query i and label 5i share token i, every other token stands in one text only."""
    queries = torch.stack([torch.arange(QUERIES), QUERIES + torch.arange(QUERIES)], 1)
    labels = 2 * QUERIES + torch.arange(2 * LABELS).view(LABELS, 2)
    labels[::POSITIVES, 0] = torch.arange(QUERIES)
    rows = torch.arange(QUERIES).repeat_interleave(POSITIVES)
    return queries, labels, Targets(rows, torch.arange(LABELS), torch.ones(LABELS), (QUERIES, LABELS))


def train(loss, steps=150):
    """Return, step by step, the share of queries whose easy positive ranks first."""
    queries, labels, targets = dataset()
    bag = torch.nn.EmbeddingBag(2 * (QUERIES + LABELS), DIM, mode="mean")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bag.weight.copy_(0.3 * torch.randn(bag.weight.shape, generator=generator))
    optimiser = torch.optim.Adam(bag.parameters(), lr=0.02)
    history = []
    for _ in range(steps):
        q, x = bag(queries), bag(labels)
        easy = POSITIVES * torch.arange(QUERIES)
        history.append((q @ x.T).detach().argmax(1).eq(easy).float().mean().item())
        optimiser.zero_grad()
        streamed(loss, q, x, targets).backward()
        optimiser.step()
    return history


@pytest.fixture(scope="module")
def histories():
    return {loss: train(loss) for loss in (Softmax(), DecoupledSoftmax())}


def test_both_find_the_easy_positive_early(histories):
    assert all(max(history[:20]) > 0.95 for history in histories.values())


def test_softmax_loses_the_easy_positive(histories):
    late = histories[Softmax()][50:]
    assert sum(late) / len(late) < 0.6


def test_decoupled_softmax_keeps_it(histories):
    assert min(histories[DecoupledSoftmax()][50:]) > 0.95
