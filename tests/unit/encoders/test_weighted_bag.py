"""The bag and its gradients against dense torch."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.encoders._weighted_bag import weighted_bag
from megalabel.types import Tokens

ROWS = 9


def tokens_of(rows):
    return Tokens(
        np.array([row for text in rows for row in text], dtype=np.uint32),
        np.concatenate([[0], np.cumsum([len(text) for text in rows])]).astype(np.int64),
    )


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, ROWS - 1), max_size=6), max_size=5), st.integers(0, 99))
def test_equals_dense_torch(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(ROWS, 4, generator=generator, dtype=torch.float64).requires_grad_()
    weights = torch.randn(ROWS, generator=generator, dtype=torch.float64).requires_grad_()
    aims = (
        torch.randn(len(rows), 4, generator=generator, dtype=torch.float64),
        torch.randn(len(rows), generator=generator),
    )
    counts = torch.zeros(len(rows), ROWS, dtype=torch.float64)
    for i, text in enumerate(rows):
        for row in text:
            counts[i, row] += 1
    expected = counts @ (weights.unsqueeze(1) * table), counts @ weights.square()
    found = weighted_bag(table, weights, tokens_of(rows))
    gradients = []
    for sums, squares in (found, expected):
        table.grad = weights.grad = None
        ((sums * aims[0]).sum() + (squares * aims[1]).sum()).backward()
        gradients.append((table.grad, weights.grad))
    for ours, theirs in zip([*found, *gradients[0]], [*expected, *gradients[1]], strict=True):
        torch.testing.assert_close(ours.to_dense(), theirs)


def test_gradient_holds_only_rows_of_the_step_once_and_in_order():
    table, weights = torch.randn(ROWS, 4, requires_grad=True), torch.ones(ROWS, requires_grad=True)
    weighted_bag(table, weights, tokens_of([[7, 2, 2], [], [2, 5]]))[0].sum().backward()
    for gradient in (table.grad, weights.grad):
        assert gradient.is_sparse
        assert gradient._indices().tolist() == [[2, 5, 7]]


def test_part_that_is_frozen_stays_so():
    table, weights = torch.randn(ROWS, 4), torch.ones(ROWS, requires_grad=True)
    weighted_bag(table, weights, tokens_of([[1]]))[0].sum().backward()
    assert table.grad is None
    assert weights.grad is not None


def test_more_rows_than_a_block():
    table, weights = torch.randn(10_000, 2, requires_grad=True), torch.rand(10_000, requires_grad=True)
    weighted_bag(table, weights, tokens_of([list(range(10_000))]))[0].sum().backward()
    torch.testing.assert_close(weights.grad.to_dense(), table.detach().sum(dim=1))
    torch.testing.assert_close(table.grad.to_dense(), weights.detach().unsqueeze(1).expand(-1, 2))


def test_two_threads_give_the_same_bits():
    generator = torch.Generator().manual_seed(0)
    table, weights = torch.randn(3_000, 64, generator=generator), torch.rand(3_000, generator=generator)
    aim = torch.randn(1_500, 64, generator=generator)
    ids = (torch.rand(1_500 * 40, generator=generator) ** 3 * 3_000).to(torch.int64).numpy().astype(np.uint32)
    tokens = Tokens(ids, np.arange(0, len(ids) + 1, 40))
    threads = torch.get_num_threads()
    results = []
    try:
        torch.set_num_threads(2)
        for _ in range(4):
            parts = [table.clone().requires_grad_(), weights.clone().requires_grad_()]
            sums, squares = weighted_bag(*parts, tokens)
            (sums * aim * squares.rsqrt().unsqueeze(1)).sum().backward()
            results.append([sums, squares, *(part.grad._values() for part in parts)])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
