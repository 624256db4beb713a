"""The rate rises, peaks at one, falls to the end, and depends on the step alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from megalabel.errors import SettingError
from megalabel.training.optim.schedule import Schedule

KINDS = ["constant", "linear", "cosine"]


@given(st.sampled_from(KINDS), st.integers(1, 200), st.integers(0, 200), st.floats(0, 1))
def test_shape(kind, total, warmup, final):
    warmup = min(warmup, total)
    schedule = Schedule(kind, total_steps=total, warmup_steps=warmup, final=final)
    factors = [schedule.factor(step) for step in range(total + 3)]
    assert all(0 < factor <= 1 for factor in factors[:total])
    assert factors[: warmup + 1] == sorted(factors[: warmup + 1])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    assert factors[warmup] == 1
    end = 1 if kind == "constant" else final
    if warmup < total:
        assert factors[total:] == pytest.approx([end] * 3)


def test_values():
    linear = Schedule("linear", total_steps=110, warmup_steps=10)
    assert linear.factor(0) == pytest.approx(1 / 11)
    assert linear.factor(60) == pytest.approx(0.5)
    cosine = Schedule("cosine", total_steps=100, final=0.1)
    assert cosine.factor(25) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert Schedule("constant", total_steps=5).factor(4) == 1


@pytest.mark.parametrize(("total", "share"), [(100, 0.33), (300, 0.3), (45, 0.2), (20, 1.0), (10, 0.2)])
def test_one_cycle_is_that_of_torch(total, share):
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=0.3, total_steps=total, pct_start=share, div_factor=10, final_div_factor=1e4,
        cycle_momentum=False,
    )  # fmt: skip
    ours = Schedule("one_cycle", total_steps=total, warmup_steps=round(share * total))
    for step in range(total):
        assert 0.3 * ours.factor(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        optimiser.step()
        if step < total - 1:
            theirs.step()


def test_one_cycle_without_warmup_begins_at_its_peak():
    for steps in (0, 1):
        cycle = Schedule("one_cycle", total_steps=5, warmup_steps=steps)
        assert [cycle.factor(0), cycle.factor(9)] == pytest.approx([1, 1e-5])
    assert Schedule("one_cycle", total_steps=1).factor(0) == 1


def test_milestones_multiply_what_the_schedule_says():
    plain = Schedule("linear", total_steps=20, warmup_steps=4)
    falling = Schedule("linear", total_steps=20, warmup_steps=4, milestones=(2, 10), milestone_factor=0.75)
    ratios = [falling.factor(step) / plain.factor(step) for step in range(20)]
    assert ratios == pytest.approx([1.0] * 2 + [0.75] * 8 + [0.75**2] * 10)


def test_many_optimisers_keep_their_own_base_rate():
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    first = torch.optim.SGD([{"params": [weights[0]], "lr": 0.4}, {"params": [weights[1]]}], lr=0.2)
    second = torch.optim.AdamW([weights[2]], lr=0.01)
    schedule = Schedule("linear", total_steps=4)
    for step in (0, 3, 2):  # any order: there is no state but the step
        schedule.apply(step, [first, second])
        rates = [group["lr"] for optimiser in (first, second) for group in optimiser.param_groups]
        assert rates == pytest.approx([rate * (1 - step / 4) for rate in (0.4, 0.2, 0.01)])


def test_resume_needs_the_step_only():
    def optimiser():
        return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)

    schedule, first, second = Schedule("cosine", total_steps=9, warmup_steps=2), optimiser(), optimiser()
    for step in range(6):
        schedule.apply(step, [first])
    second.load_state_dict(first.state_dict())
    schedule.apply(5, [second])
    assert first.param_groups[0]["lr"] == second.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Schedule("cosin", total_steps=5), "did you mean 'cosine'"),
        (Schedule("linear", total_steps=5, warmup_steps=6), "a warm-up of 6 steps in a training of 5"),
        (Schedule("linear", total_steps=0), "0"),
        (Schedule("one_cycle", total_steps=5, final=0.5), "one_cycle has an end of its own"),
        (Schedule("linear", total_steps=5, final=1.5), "final is 1.5"),
    ],
)
def test_bad_settings(schedule, message):
    with pytest.raises(SettingError, match=message):
        schedule.factor(0)
