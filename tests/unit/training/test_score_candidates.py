"""Scores of each query's own labels: the plain form gives the same, gradients too."""

import pytest
import torch
from megalabel.training.score_candidates import score_candidates


@pytest.mark.parametrize(
    ("b", "labels", "width"), [(1, 1, 1), (3, 7, 5), (20, 4, 9), (17, 50, 1), (0, 3, 2), (2, 3, 0)]
)
def test_value_and_gradients_are_those_of_the_plain_form(b, labels, width):
    generator = torch.Generator().manual_seed(b)
    queries = torch.randn(b, 6, generator=generator, requires_grad=True)
    vectors = torch.randn(labels, 6, generator=generator, requires_grad=True)
    places = torch.randint(labels, (b, width), generator=generator)
    found, expected = score_candidates(queries, vectors, places), (vectors[places] * queries.unsqueeze(1)).sum(2)
    torch.testing.assert_close(found, expected)
    sent = torch.randn(b, width, generator=generator)
    ours, theirs = (torch.autograd.grad(scores, [queries, vectors], sent) for scores in (found, expected))
    for mine, plain in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, plain)


def test_two_threads_give_the_same_bits():
    generator, threads = torch.Generator().manual_seed(0), torch.get_num_threads()
    queries = torch.randn(300, 32, generator=generator)
    vectors = torch.randn(40, 32, generator=generator, requires_grad=True)
    places = torch.randint(40, (300, 50), generator=generator)
    try:
        torch.set_num_threads(2)
        first, *others = [
            torch.autograd.grad(score_candidates(queries, vectors, places).square().sum(), vectors)[0] for _ in range(3)
        ]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(first, other) for other in others)
