"""Tables in half precision: rounding at random has no bias, and small steps are not lost."""

import pytest
import torch
from torch import nn

from megalabel.errors import SettingError
from megalabel.recipes.optimisers import AdamWSettings, LazyAdamWSettings, RowAdagradSettings, SgdSettings
from megalabel.training.optim import flatten_state, make_optimisers, restore_state, row_wise
from megalabel.training.optim.row_wise import BlockSGD, round_stochastically

HALVES = [torch.bfloat16, torch.float16]
SETTINGS = {"sgd": SgdSettings, "row_adagrad": RowAdagradSettings, "lazy_adamw": LazyAdamWSettings}


def make(kind, table, **more):
    return make_optimisers({"tables": SETTINGS[kind](**more)}, {"tables": [("heads.a.table", table)]})["tables"]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("value", [1.0007, -0.0201234, 3e-5, -1e-7, 2.5e-8, 1234.567])
def test_rounding_goes_to_a_neighbour_and_has_the_right_mean(dtype, value):
    torch.manual_seed(0)
    values = torch.full((200_000,), value)
    rounded = round_stochastically(values, dtype).float()
    below, above = rounded.min().item(), rounded.max().item()
    assert below <= values[0].item() <= above
    assert len(set(rounded.tolist())) <= 2
    gap = above - below
    assert abs(rounded.double().mean().item() - values[0].double().item()) <= 0.01 * gap
    nearest = torch.tensor(value).to(dtype).float().item()
    assert nearest in (below, above)


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_of_the_type_stay_as_they_are(dtype):
    values = torch.randn(1_000, generator=torch.Generator().manual_seed(1)).to(dtype)
    values = torch.cat([values, torch.tensor([0.0, -0.0, 1e-6], dtype=dtype)])
    assert torch.equal(round_stochastically(values.float(), dtype), values)
    assert round_stochastically(torch.tensor([1e39, -1e39]), dtype).isfinite().all()


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("sparse", [False, True])
def test_steps_smaller_than_the_gap_between_two_numbers_add_up(kind, sparse):
    """A hundred steps of about 1e-3 from 1, where bfloat16 has gaps of 4e-3 below 1 and 8e-3 above."""
    torch.manual_seed(0)
    table, exact = (nn.Parameter(torch.ones(64, 8, dtype=dtype)) for dtype in (torch.bfloat16, torch.float32))
    rates = {"sgd": 1e-3, "row_adagrad": 1e-2, "lazy_adamw": 1e-3}
    more = {"momentum": 0.0} if kind == "sgd" else {}
    optimisers = [make(kind, each, lr=rates[kind], **more) for each in (table, exact)]
    for _ in range(100):
        for parameter, optimiser in zip((table, exact), optimisers, strict=True):
            gradient = torch.ones_like(parameter)
            parameter.grad = gradient.to_sparse(1) if sparse else gradient
            optimiser.step()
    moved, expected = 1 - table.detach().float().mean().item(), 1 - exact.detach().mean().item()
    assert expected > 0.09
    assert moved == pytest.approx(expected, rel=0.05)
    lost = torch.ones(1, dtype=torch.bfloat16)
    for _ in range(100):
        lost -= 1e-3
    assert lost.item() == 1.0  # what rounding to the nearest does


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("sparse", [False, True])
def test_sgd_follows_that_of_torch(monkeypatch, dtype, sparse):
    monkeypatch.setattr(row_wise, "BLOCK", 7)
    torch.manual_seed(2)
    start = torch.randn(30, 5).to(dtype)
    table, exact = nn.Parameter(start.clone()), nn.Parameter(start.float())
    ours = make("sgd", table, lr=0.05, momentum=0.9, weight_decay=0.01)
    assert isinstance(ours, BlockSGD)
    theirs = torch.optim.SGD([exact], lr=0.05, momentum=0.9, weight_decay=0.01)
    for _ in range(20):
        gradient = torch.randn(30, 5).to(dtype)
        if sparse:
            gradient[::3] = 0
        table.grad = gradient.to_sparse(1) if sparse else gradient
        exact.grad = gradient.float()
        ours.step(), theirs.step()
    error = (table.detach().float() - exact.detach()).abs().max().item()
    assert error < (0.12 if dtype == torch.bfloat16 else 0.015)


def test_a_float32_table_in_the_same_group_is_trained_as_by_torch():
    torch.manual_seed(2)
    half, full = nn.Parameter(torch.ones(4, 3, dtype=torch.float16)), nn.Parameter(torch.randn(9, 5))
    exact = nn.Parameter(full.detach().clone())
    named = [("heads.a.table", half), ("encoders.e.table", full)]
    ours = make_optimisers({"tables": SgdSettings(lr=0.1)}, {"tables": named})["tables"]
    theirs = torch.optim.SGD([exact], lr=0.1, momentum=0.9)
    for _ in range(3):
        full.grad = torch.randn(9, 5)
        exact.grad = full.grad.clone()
        ours.step(), theirs.step()
    torch.testing.assert_close(full, exact)


def test_momentum_has_the_type_of_the_table_and_survives_a_checkpoint():
    table = nn.Parameter(torch.ones(4, 3, dtype=torch.bfloat16))
    optimiser = make("sgd", table, lr=0.1, momentum=0.9)
    table.grad = torch.full_like(table, 0.5)
    optimiser.step()
    tensors, scalars = flatten_state(optimiser)
    assert tensors["0.momentum_buffer"].dtype == torch.bfloat16
    again = make("sgd", table, lr=0.1, momentum=0.9)
    restore_state(again, tensors, scalars)
    assert torch.equal(again.state[table]["momentum_buffer"], optimiser.state[table]["momentum_buffer"])


def test_dense_adamw_is_refused():
    table = nn.Parameter(torch.ones(4, 3, dtype=torch.float16))
    with pytest.raises(SettingError, match=r"cannot train heads.a.table in half precision"):
        make_optimisers({"tables": AdamWSettings(lr=0.1)}, {"tables": [("heads.a.table", table)]})
