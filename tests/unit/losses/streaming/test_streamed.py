"""The streamed form equals the plain one, for every loss, any block, any device setting."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from megalabel.errors import DataError, SettingError
from megalabel.losses import (
    BCE,
    DecoupledSoftmax,
    ProbabilisticContrastive,
    Softmax,
    SoftTopK,
    SquaredHinge,
    Sum,
    SupCon,
    Symmetric,
    Triplet,
    streamed,
)
from megalabel.losses.streaming.blocks import Plan
from megalabel.types import Targets

LOSSES = [
    BCE(),
    SquaredHinge(),
    Softmax(positives="sum", reduction="sum"),
    SupCon(balanced=True),
    DecoupledSoftmax(),
    DecoupledSoftmax(positives="count"),
    Softmax(positives="count"),
    SoftTopK(2),
    SoftTopK("positives"),
    Triplet(k=3),
    Triplet(margin=0.2, k=5, positives=2, weights="hinge"),
    ProbabilisticContrastive(),
    ProbabilisticContrastive(c=0.9, d=1.5, k=2, threshold=0.0, scaled=False),
    Symmetric(DecoupledSoftmax(), weight=0.3),
    Symmetric(Sum((BCE(), Triplet(k=2)))),
    Sum((Symmetric(Softmax()), SoftTopK(1), Triplet(k=2), BCE()), weights=(1.0, 0.5, 2.0, 0.1)),
]


def problem(seed, rows, cols, dtype, dim=4, density=0.3):
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=dtype)

    targets = (rand(rows, cols) < density) * (rand(rows, cols) * 0.9 + 0.1)
    unit = torch.nn.functional.normalize
    queries, labels = unit(rand(rows, dim) * 2 - 1), unit(rand(cols, dim) * 2 - 1)
    return queries, labels, torch.tensor(0.8, dtype=dtype), rand(cols) * 0.2, targets, rand(rows, cols) < 0.8


def both(loss, inputs, targets, extra, **options):
    out = []
    for plain in (True, False):
        q, x, t, b = leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        if plain:
            value = loss(q @ x.T / t + b, targets, **extra)
        else:
            value = streamed(loss, q, x, targets, temperature=t, bias=b, **extra, **options)
        out.append([value.detach(), *torch.autograd.grad(value, leaves)])
    return out


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@settings(max_examples=12)
@given(data=st.data())
def test_equals_plain_in_double(loss, data):
    rows, cols = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 16))
    seed, block = data.draw(st.integers(0, 2**20)), data.draw(st.sampled_from([1, 7, cols, cols + 1]))
    *inputs, targets, mask = problem(
        seed, rows, cols, torch.float64, density=data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    )
    extra = {"mask": mask} if data.draw(st.booleans()) else {}
    budget = data.draw(st.sampled_from([0, 800, None]))
    plain, stream = both(loss, inputs, targets, extra, block=block, budget=budget)
    for left, right in zip(stream, plain, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_equals_plain_in_single(loss):
    *inputs, targets, mask = problem(3, 6, 50, torch.float32)
    for block in (1, 7, 50, 51):
        plain, stream = both(loss, inputs, targets, {"mask": mask}, block=block, budget=0)
        for left, right in zip(stream, plain, strict=True):
            assert (left - right).norm() <= 1e-5 * right.norm() + 1e-7


@pytest.mark.parametrize("loss", [BCE(), Softmax(), DecoupledSoftmax(), SoftTopK(2), SquaredHinge()], ids=repr)
def test_log_q_and_no_bias(loss):
    q, x, t, _, targets, _ = problem(5, 4, 30, torch.float64)
    log_q = torch.linspace(0.1, 1, 30, dtype=torch.float64).log()
    value = streamed(loss, q, x, targets, temperature=t, log_q=log_q, block=7, budget=0)
    torch.testing.assert_close(value, loss(q @ x.T / t, targets, log_q=log_q), rtol=1e-10, atol=1e-10)


def test_scalar_bias_and_float_temperature_and_scaled_loss():
    q, x, _, _, targets, _ = problem(5, 4, 30, torch.float64)
    actual = []
    for plain in (True, False):
        leaves = [q.clone().requires_grad_(), torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)]
        if plain:
            value = BCE()(leaves[0] @ x.T / 0.5 + leaves[1], targets)
        else:
            value = streamed(BCE(), leaves[0], x, targets, temperature=0.5, bias=leaves[1], block=7)
        actual.append(torch.autograd.grad(3 * value, leaves))
    for left, right in zip(*actual, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "loss",
    [
        Symmetric(BCE(), weight=0.0),
        Symmetric(Triplet(k=2), weight=1.0),
        Sum((DecoupledSoftmax(), Triplet(k=2), BCE()), weights=(0.0, 1.0, 0.0)),
        Sum((BCE(),), weights=(0.0,)),
    ],
    ids=repr,
)
def test_parts_of_weight_zero(loss):
    *inputs, targets, _ = problem(5, 4, 30, torch.float64)
    plain, stream = both(loss, inputs, targets, {}, block=7)
    for left, right in zip(stream, plain, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_a_mask_row_broadcasts_to_all_queries():
    q, x, _, _, targets, mask = problem(5, 4, 30, torch.float64)
    loss = DecoupledSoftmax()
    value = streamed(loss, q, x, targets, mask=mask[:1], block=7)
    torch.testing.assert_close(value, loss(q @ x.T, targets, mask[:1].expand(4, 30)), rtol=1e-10, atol=1e-10)


def test_sparse_targets_in_any_order():
    q, x, _, _, targets, _ = problem(5, 4, 30, torch.float64)
    sparse = Targets.from_dense(targets)
    order = torch.randperm(sparse.rows.numel(), generator=torch.Generator().manual_seed(0))
    shuffled = Targets(sparse.rows[order], sparse.cols[order], sparse.values[order], sparse.shape)
    loss = DecoupledSoftmax()
    assert torch.equal(streamed(loss, q, x, shuffled), streamed(loss, q, x, targets))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_repeats_bit_for_bit(loss):
    *inputs, targets, mask = problem(9, 8, 100, torch.float32)
    first, second = (both(loss, inputs, targets, {"mask": mask}, block=16)[1] for _ in range(2))
    assert all(torch.equal(left, right) for left, right in zip(first, second, strict=True))


@pytest.mark.parametrize("loss", [BCE(), DecoupledSoftmax(), SoftTopK(2), Triplet(k=2), Symmetric(Softmax())], ids=repr)
def test_half_precision_and_autocast(loss):
    q, x, t, b, targets, _ = problem(9, 8, 100, torch.float32)
    exact = streamed(loss, q, x, targets, temperature=t, bias=b)
    narrow = [tensor.to(torch.bfloat16).requires_grad_() for tensor in (q, x)]
    value = streamed(loss, *narrow, targets, temperature=t, bias=b, block=16)
    assert value.dtype is torch.float32
    gradients = torch.autograd.grad(value, narrow)
    assert all(part.dtype is torch.bfloat16 and part.isfinite().all() for part in gradients)
    torch.testing.assert_close(value, exact, rtol=0.03, atol=0.03)
    wide = [tensor.clone().requires_grad_() for tensor in (q, x)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = streamed(loss, *wide, targets, temperature=t, bias=b, block=16)
    assert value.dtype is torch.float32
    gradients = torch.autograd.grad(value, wide)
    true = torch.autograd.grad(streamed(loss, *wide, targets, temperature=t, bias=b), wide)
    for left, right in zip(gradients, true, strict=True):
        assert left.dtype is torch.float32
        assert (left - right).norm() <= 0.05 * right.norm()


def test_first_and_last_label_get_gradient_at_every_block_edge():
    q, x, _, _, _, _ = problem(2, 3, 23, torch.float64)
    for block in (1, 7, 23, 24):
        for col in (0, 6, 7, 22):
            labels = x.clone().requires_grad_()
            targets = Targets(torch.tensor([1]), torch.tensor([col]), torch.ones(1), (3, 23))
            streamed(DecoupledSoftmax(), q, labels, targets, block=block).backward()
            plain = x.clone().requires_grad_()
            DecoupledSoftmax()(q @ plain.T, targets).backward()
            torch.testing.assert_close(labels.grad, plain.grad, rtol=1e-10, atol=1e-12)


def test_value_alone_needs_no_gradient():
    q, x, _, _, targets, _ = problem(2, 3, 23, torch.float32)
    with torch.no_grad():
        value = streamed(DecoupledSoftmax(), q.requires_grad_(), x.requires_grad_(), targets)
    assert not value.requires_grad


def test_only_inputs_that_require_gradients_get_them():
    q, x, _, _, targets, _ = problem(2, 3, 23, torch.float32)
    streamed(DecoupledSoftmax(), q.requires_grad_(), x, targets).backward()
    assert q.grad is not None
    assert x.grad is None


def test_a_second_backward_is_refused_with_a_message():
    q, x, _, _, targets, _ = problem(2, 3, 23, torch.float32)
    value = streamed(BCE(), q.requires_grad_(), x, targets)
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        value.backward()


def test_inputs_are_not_changed():
    *inputs, targets, mask = problem(7, 5, 40, torch.float32)
    before = [tensor.clone() for tensor in (*inputs, targets, mask)]
    both(Sum((BCE(), SoftTopK(2), Triplet())), inputs, targets, {"mask": mask}, block=16)
    assert all(torch.equal(left, right) for left, right in zip((*inputs, targets, mask), before, strict=True))


def test_skip_is_exact_to_its_bound():
    q, x, _, _, _, _ = problem(2, 3, 64, torch.float64)
    q = q.abs()
    x[32:] = -8.0  # half of the labels are far away
    targets = torch.zeros(3, 64)
    targets[:, 0] = 1
    actual = []
    for skip in (None, 1e-6):
        leaves = [q.clone().requires_grad_(), x.clone().requires_grad_()]
        value = streamed(DecoupledSoftmax(), *leaves, targets, temperature=0.2, block=16, skip=skip)
        actual.append(torch.autograd.grad(value, leaves))
    for left, right in zip(*actual, strict=True):
        assert (left - right).abs().max() <= 1e-6 * 64 * x.norm(dim=1).max() / 0.2
    assert (actual[1][1][32:] == 0).all()
    assert (actual[1][1][:16] != 0).any()


def test_blocks_follow_the_budget():
    small, large = Plan.make(1024, 4, None, 1 << 20), Plan.make(1024, 4, None, 1 << 30)
    assert small.width * 1024 * 4 * 4 <= 1 << 20
    assert small.keep == 0
    assert (large.keep + 4) * large.width * 1024 * 4 <= 1 << 30
    assert large.keep > 100
    assert Plan.make(1024, 4, 7, 0) == Plan(7, 0)


def test_empty_batch_and_empty_pool():
    for rows, cols in ((0, 5), (3, 0)):
        q, x = torch.zeros(rows, 4, requires_grad=True), torch.zeros(cols, 4, requires_grad=True)
        for loss in (BCE(), DecoupledSoftmax(), SoftTopK(2), Triplet(), Symmetric(Softmax())):
            value = streamed(loss, q, x, torch.zeros(rows, cols))
            assert value.item() == 0
            assert all(
                part.shape == leaf.shape for part, leaf in zip(torch.autograd.grad(value, (q, x)), (q, x), strict=True)
            )


def test_invalid_input_is_named_in_the_error():
    q, x, _, _, targets, _ = problem(2, 3, 23, torch.float32)
    with pytest.raises(DataError, match="do not fit"):
        streamed(BCE(), q, x[:, :2], targets)
    with pytest.raises(DataError, match="targets have shape"):
        streamed(BCE(), q, x, targets[:, :3])
    with pytest.raises(DataError, match="bias"):
        streamed(BCE(), q, x, targets, bias=torch.zeros(3))
    with pytest.raises(SettingError, match="block"):
        streamed(BCE(), q, x, targets, block=0)
    with pytest.raises(SettingError, match="reduction"):
        streamed(BCE(reduction="none"), q, x, targets)
    with pytest.raises(SettingError, match="no streamed form"):
        streamed(lambda scores, targets, mask=None: scores.sum(), q, x, targets)
    with pytest.raises(SettingError, match="cosines"):
        streamed(Sum((BCE(), Triplet())), q, x, targets, log_q=torch.zeros(23))


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor any operation gave."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, torch.Tensor):
                self.size = max(self.size, part.untyped_storage().nbytes() // part.element_size())
        return out


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_never_holds_the_scores(loss):
    rows, cols, dim = 64, 2000, 4
    q, x, t, b, _, _ = problem(1, rows, cols, torch.float32, dim)
    targets = Targets(torch.arange(rows), torch.arange(rows) * 30, torch.ones(rows), (rows, cols))
    with Largest() as seen:
        streamed(
            loss, q.requires_grad_(), x.requires_grad_(), targets, temperature=t, bias=b, block=64, budget=0
        ).backward()
    # the vectors, the block, and what the soft top-k search knows of each block: its four highest scores
    assert seen.size <= max(rows * 64 * 2, cols * (dim + 1), rows * (cols // 64 + 1) * 4 * 2)
    assert seen.size < rows * cols / 4


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_finite_at_large_scores(loss):
    q, x, _, _, targets, _ = problem(1, 4, 30, torch.float32)
    leaves = [q.requires_grad_(), x.requires_grad_()]
    value = streamed(loss, *leaves, targets, temperature=1e-4, block=7)
    assert value.isfinite()
    assert all(part.isfinite().all() for part in torch.autograd.grad(value, leaves))


def test_a_summed_bce_is_the_gradient_of_renee():
    """Sigma(s) - y, summed over the batch: the products that Renee writes down without a loss."""
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randn(23, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = (torch.rand(5, 23, generator=generator) < 0.2).double()
    streamed(BCE(reduction="sum"), queries, labels, targets, block=7).backward()
    difference = (queries @ labels.T).sigmoid() - targets
    torch.testing.assert_close(labels.grad, difference.T @ queries, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(queries.grad, difference @ labels, rtol=1e-12, atol=1e-12)
