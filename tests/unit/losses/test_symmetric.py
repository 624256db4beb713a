"""Labels as anchors, also with candidates per row."""

import pytest
import torch

from megalabel.errors import DataError
from megalabel.losses import BCE, DecoupledSoftmax, Softmax, SoftTopK, Sum, Symmetric, Triplet, on_candidates
from megalabel.types import Targets

INNER = [BCE(), BCE(reduction="cells"), DecoupledSoftmax(), Softmax(reduction="sum"), SoftTopK(2), Triplet(k=2)]


def problem(rows=5, slots=6, labels=9, seed=0):
    """Each row holds some of the labels, in an order of its own; the last slots of row 0 are padding."""
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.stack([torch.randperm(labels, generator=generator)[:slots] for _ in range(rows)])
    candidates[0, -2:] = -1
    scores = torch.rand(rows, slots, generator=generator, dtype=torch.float64) * 2 - 1
    targets = (torch.rand(rows, slots, generator=generator) < 0.3) * torch.rand(rows, slots, generator=generator)
    mask = (torch.rand(rows, slots, generator=generator) < 0.9) & (candidates >= 0)
    return scores.requires_grad_(), (targets * mask).double(), mask, candidates


def by_label(loss, scores, targets, mask, candidates, labels=9):
    """Return the loss of each label that is a positive of some row, over the rows that hold it: a loop over cells."""
    rows = []
    for label in range(labels):
        cells = [
            (row, slot) for row, slot in (candidates == label).nonzero().tolist() if mask is None or mask[row, slot]
        ]
        if any(targets[cell] > 0 for cell in cells):
            rows.append([(scores[cell], targets[cell]) for cell in cells])
    width = max(map(len, rows))
    filled = [row + [(torch.zeros((), dtype=torch.float64),) * 2] * (width - len(row)) for row in rows]
    return loss(
        torch.stack([torch.stack([score for score, _ in row]) for row in filled]),
        torch.stack([torch.stack([target for _, target in row]) for row in filled]),
        torch.tensor([[slot < len(row) for slot in range(width)] for row in rows]),
    )


@pytest.mark.parametrize("loss", INNER, ids=repr)
def test_candidates_of_a_label_are_the_rows_that_hold_it(loss):
    for seed in range(5):
        scores, targets, mask, candidates = problem(seed=seed)
        value = on_candidates(Symmetric(loss, 0.3), scores, targets, mask, candidates)
        expected = 0.3 * loss(scores, targets, mask) + 0.7 * by_label(loss, scores, targets, mask, candidates)
        torch.testing.assert_close(value, expected)
        gradients = [torch.autograd.grad(part, scores)[0] for part in (value, expected)]
        torch.testing.assert_close(*gradients)
        sparse = on_candidates(Symmetric(loss, 0.3), scores, Targets.from_dense(targets), mask, candidates)
        torch.testing.assert_close(sparse, value)


@pytest.mark.parametrize("loss", INNER, ids=repr)
@pytest.mark.parametrize("wrap", [Symmetric, lambda loss: Sum((Symmetric(loss), BCE()))], ids=["alone", "in a sum"])
def test_a_row_does_not_change_the_gradient_of_a_row_with_other_labels(loss, wrap):
    candidates = torch.tensor([[3, 1, 2], [4, 5, 6]])
    targets = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]], dtype=torch.float64)
    gradients = []
    for other in (0.4, 0.9):
        scores = torch.tensor([[0.5, 0.4, -0.1], [other, 0.3, 0.2]], dtype=torch.float64, requires_grad=True)
        on_candidates(wrap(loss), scores, targets, None, candidates).backward()
        gradients.append(scores.grad)
    assert torch.equal(gradients[0][0], gradients[1][0])


@pytest.mark.parametrize("loss", INNER, ids=repr)
def test_rows_with_the_same_labels_in_any_order_equal_a_shared_pool(loss):
    generator = torch.Generator().manual_seed(3)
    pool = torch.rand(4, 6, generator=generator, dtype=torch.float64)
    relevant = (torch.rand(4, 6, generator=generator) < 0.4).double()
    order = torch.stack([torch.randperm(6, generator=generator) for _ in range(4)])
    value = on_candidates(Symmetric(loss), pool.gather(1, order), relevant.gather(1, order), None, order + 10)
    torch.testing.assert_close(value, Symmetric(loss)(pool, relevant))


@pytest.mark.parametrize("loss", INNER, ids=repr)
def test_no_positive_at_all_is_finite(loss):
    scores, targets, mask, candidates = problem()
    value = on_candidates(Symmetric(loss), scores, torch.zeros_like(targets), mask, candidates)
    assert value.isfinite()
    assert torch.autograd.grad(value, scores)[0].isfinite().all()


def test_a_loss_of_rows_is_called_without_labels():
    scores, targets, mask, candidates = problem()
    assert on_candidates(BCE(), scores, targets, mask, candidates) == BCE()(scores, targets, mask)
    plain = Sum((BCE(), lambda scores, targets, mask=None: scores.sum()))
    assert on_candidates(plain, scores, targets, mask, candidates) == plain(scores, targets, mask)


def test_columns_of_another_shape_are_refused():
    scores, targets, mask, candidates = problem()
    with pytest.raises(DataError, match="columns have shape"):
        on_candidates(Symmetric(BCE()), scores, targets, mask, candidates[:, :2])


def test_repeats_bit_for_bit():
    scores, targets, mask, candidates = problem(rows=60, slots=40, labels=90)
    gradients = [
        torch.autograd.grad(on_candidates(Symmetric(Softmax()), scores, targets, mask, candidates), scores)[0]
        for _ in range(2)
    ]
    assert torch.equal(*gradients)
