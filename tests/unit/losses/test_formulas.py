"""Values against golden vectors and naive double-precision loops."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
    TruncatedSoftmax,
)
from megalabel.types import Targets

_path = Path(__file__).parents[2] / "oracles" / "losses.py"
_spec = importlib.util.spec_from_file_location("oracle_losses", _path)
oracle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oracle)

SCORES = torch.tensor([[2.0, 0.5, -1.0, 1.0, 0.0]], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, 1, 0, 0, 1]], dtype=torch.float64)
GOLDEN = [
    (BCE(), 2.92067555, [-0.11920292, -0.37754067, 0.26894142, 0.73105858, -0.5]),
    (Softmax(positives="sum"), 5.22331382, [0.68906370, -0.62311895, 0.08409353, 0.62137181, -0.77141009]),
    (Softmax(), 1.74110461, [0.22968790, -0.20770632, 0.02803118, 0.20712394, -0.25713670]),
    (SupCon(), 1.74110461, [0.22968790, -0.20770632, 0.02803118, 0.20712394, -0.25713670]),
    (DecoupledSoftmax(), 0.93719170, [-0.09820516, -0.21726419, 0.06761506, 0.49961147, -0.25175718]),
    (SoftTopK(2), 1.01740608, [0.06440955, -0.10694572, 0.03600598, 0.37017805, -0.36364786]),
]


@pytest.mark.parametrize(("loss", "value", "gradient"), GOLDEN, ids=lambda part: repr(part)[:40])
def test_golden_vectors(loss, value, gradient):
    scores = SCORES.clone().requires_grad_()
    got = loss(scores, TARGETS)
    got.backward()
    assert got.item() == pytest.approx(value, abs=1e-7)
    assert scores.grad[0].tolist() == pytest.approx(gradient, abs=1e-7)


def test_golden_memberships():
    members = SoftTopK(2).memberships(SCORES)[0].tolist()
    assert members == pytest.approx([0.90961317, 0.33379306, 0.02433796, 0.57662184, 0.15563398], abs=1e-7)


ORACLES = [
    (BCE(), oracle.bce, {}),
    (SquaredHinge(margin=0.7), oracle.squared_hinge, {"margin": 0.7}),
    (Softmax(), oracle.softmax, {}),
    (Softmax(positives="sum"), oracle.softmax, {"how": "sum"}),
    (Softmax(positives="count"), oracle.softmax, {"how": "count"}),
    (SupCon(balanced=True), oracle.softmax, {"balanced": True}),
    (DecoupledSoftmax(), oracle.decoupled_softmax, {}),
    (DecoupledSoftmax(positives="count"), oracle.decoupled_softmax, {"how": "count"}),
    (DecoupledSoftmax(positives="sum"), oracle.decoupled_softmax, {"how": "sum"}),
    (SoftTopK(2), oracle.soft_top_k, {"k": 2}),
    (SoftTopK("positives", alpha=3.0), oracle.soft_top_k, {"k": "positives", "alpha": 3.0}),
    (Triplet(k=3), oracle.triplet, {"k": 3}),
    (Triplet(k=3, weights="violators"), oracle.triplet, {"k": 3, "weights": "violators"}),
    (
        Triplet(margin=0.2, k=5, positives=3, weights="hinge"),
        oracle.triplet,
        {"margin": 0.2, "k": 5, "hardest_positives": 3, "weights": "hinge"},
    ),
    (Triplet(k=2, positives=1), oracle.triplet, {"k": 2, "hardest_positives": 1}),
    (TruncatedSoftmax(scale=1.5), oracle.truncated_softmax, {"scale": 1.5}),
    (ProbabilisticContrastive(), oracle.probabilistic_contrastive, {}),
    (
        ProbabilisticContrastive(c=0.9, d=1.5, k=2, threshold=0.0, scaled=False),
        oracle.probabilistic_contrastive,
        {"c": 0.9, "d": 1.5, "k": 2, "threshold": 0.0, "scaled": False},
    ),
]


@pytest.mark.parametrize(
    ("loss", "naive", "options"), ORACLES, ids=lambda part: getattr(part, "__name__", repr(part)[:40])
)
@settings(max_examples=25)
@given(data=st.data())
def test_naive_loop(loss, naive, options, data):
    rows, cols = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 8))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**20)))

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    scores = rand(rows, cols) * 2 - 1
    targets = (rand(rows, cols) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))) * (rand(rows, cols) * 0.9 + 0.1)
    mask = rand(rows, cols) < 0.7 if data.draw(st.booleans()) else None
    log_q = rand(cols).log() if loss.takes_log_q and data.draw(st.booleans()) else None
    got = loss(scores, targets, mask, log_q=log_q)
    expected = 0.0
    for i in range(rows):
        positives, negatives = oracle.cells(
            scores[i].tolist(),
            targets[i].tolist(),
            None if mask is None else mask[i].tolist(),
            None if log_q is None else log_q.tolist(),
        )
        expected += naive(positives, negatives, **options) / rows
    assert got.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_one_positive_makes_softmax_and_decoupled_softmax_equal():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(6, 20, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.eye(6, 20)
    values = [loss(scores, targets) for loss in (Softmax(), SupCon(balanced=True), DecoupledSoftmax())]
    gradients = [torch.autograd.grad(value, scores)[0] for value in values]
    for value, gradient in zip(values[1:], gradients[1:], strict=True):
        torch.testing.assert_close(value, values[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [Softmax, DecoupledSoftmax])
def test_weights_of_soft_targets(kind):
    """Rows with targets of 1 and of 0.25: equal under mean, a quarter under count; hard targets do not care."""
    scores = torch.randn(1, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64).repeat(2, 1)
    hard = (torch.arange(8) < 3).double().repeat(2, 1)
    soft = hard * torch.tensor([[1.0], [0.25]])
    mean, count, total = (kind(positives=how, reduction="none") for how in ("mean", "count", "sum"))
    torch.testing.assert_close(mean(scores, hard), count(scores, hard))
    torch.testing.assert_close(total(scores, hard), 3 * count(scores, hard))
    assert mean(scores, soft)[0].item() == pytest.approx(mean(scores, soft)[1].item())
    assert count(scores, soft)[1].item() == pytest.approx(count(scores, soft)[0].item() / 4)


def test_an_easy_negative_takes_weight_from_the_hard_one_in_the_triplets_of_ngame_only():
    scores = torch.tensor([[0.5, 0.4, -0.9]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[1.0, 0.0, 0.0]])
    share = math.exp(0.4 / 0.1) / (math.exp(0.4 / 0.1) + 1)  # the easy one has logit 0
    loss = Triplet()(scores, targets)
    assert loss.item() == pytest.approx(share * 0.2)
    (gradient,) = torch.autograd.grad(loss, scores)
    slope = share * (1 + (0.2 - share * 0.2) / 0.1)
    assert gradient[0].tolist() == pytest.approx([-share, slope, 0.0])
    assert Triplet(weights="violators")(scores, targets).item() == pytest.approx(0.2)


def test_softmax_pushes_the_easy_positive_down_and_decoupled_softmax_does_not():
    scores = SCORES.clone().requires_grad_()
    (coupled,) = torch.autograd.grad(Softmax()(scores, TARGETS), scores)
    (free,) = torch.autograd.grad(DecoupledSoftmax()(scores, TARGETS), scores)
    assert coupled[0, 0] > 0.2
    assert (free[TARGETS > 0] < 0).all()


def test_mean_over_draws_of_one_positive_is_the_normalised_softmax():
    targets = torch.tensor([[0.5, 0.25, 0.0, 0.0, 0.25]], dtype=torch.float64)
    mean = 0.0
    for col in (0, 1, 4):
        one = Targets(torch.tensor([0]), torch.tensor([col]), torch.ones(1), (1, 5))
        mean += targets[0, col] * Softmax()(SCORES, one)
    torch.testing.assert_close(Softmax()(SCORES, targets), mean, rtol=1e-12, atol=0)


def test_log_q_makes_the_sampled_denominator_unbiased():
    """Averaged over which negatives were drawn, the corrected denominator is the full one."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 12, generator=generator, dtype=torch.float64)
    targets = torch.zeros(1, 12)
    targets[0, 0] = 1
    q = torch.rand(12, generator=generator, dtype=torch.float64) * 0.8 + 0.2
    total, draws = 0.0, 20_000
    drawn = torch.rand(draws, 12, generator=generator, dtype=torch.float64) < q
    drawn[:, 0] = True
    loss = Softmax(reduction="none")
    rows = loss(scores.expand(draws, 12), targets.expand(draws, 12), drawn, log_q=q.log())
    total = rows.exp().mean()  # denominator over e^s of the positive
    assert total.item() == pytest.approx(loss(scores, targets).exp().item(), rel=0.01)


def test_symmetric_uses_only_labels_with_a_positive():
    scores = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.zeros(3, 5)
    targets[0, 1] = targets[1, 1] = targets[2, 4] = 1
    loss = DecoupledSoftmax()
    anchors = [1, 4]
    expected = 0.25 * loss(scores, targets) + 0.75 * loss(scores[:, anchors].T, targets[:, anchors].T)
    torch.testing.assert_close(Symmetric(loss, weight=0.25)(scores, targets), expected)


def test_sum_weighs_its_parts():
    loss = Sum((BCE(), DecoupledSoftmax()), weights=(2.0, 0.5))
    expected = 2 * BCE()(SCORES, TARGETS) + 0.5 * DecoupledSoftmax()(SCORES, TARGETS)
    torch.testing.assert_close(loss(SCORES, TARGETS), expected)


def test_the_mean_over_cells_counts_unmasked_cells():
    mask = torch.ones_like(SCORES, dtype=torch.bool)
    mask[0, 3] = False
    for used in (None, mask):
        expected = BCE(reduction="sum")(SCORES, TARGETS, used) / (SCORES.numel() if used is None else used.sum())
        torch.testing.assert_close(BCE(reduction="cells")(SCORES, TARGETS, used), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BCE(reduction="avg"),
        lambda: Softmax(positives="all"),
        lambda: SoftTopK(0),
        lambda: SoftTopK(True),
        lambda: SoftTopK("some"),
        lambda: SoftTopK(5, alpha=0),
        lambda: Triplet(k=0),
        lambda: Triplet(temperature=0),
        lambda: Triplet(positives=0),
        lambda: Triplet(weights="all"),
        lambda: ProbabilisticContrastive(c=1.0),
        lambda: SquaredHinge(margin=-1),
        lambda: Symmetric(BCE(), weight=2),
        lambda: Symmetric(Symmetric(BCE())),
        lambda: Symmetric(BCE(reduction="none")),
        lambda: Sum(()),
        lambda: Sum((BCE(),), weights=(1.0, 2.0)),
        lambda: Triplet()(SCORES, TARGETS, log_q=torch.zeros(5)),
    ],
)
def test_wrong_settings_stop(make):
    with pytest.raises(SettingError):
        make()


@pytest.mark.parametrize(
    "call",
    [
        lambda: BCE()(SCORES[0], TARGETS),
        lambda: BCE()(SCORES, TARGETS[:, :4]),
        lambda: BCE()(SCORES, TARGETS, torch.ones(1, 5)),
        lambda: BCE()(SCORES, TARGETS, torch.ones(2, 5, dtype=torch.bool)),
    ],
)
def test_wrong_shapes_stop(call):
    with pytest.raises(DataError):
        call()
