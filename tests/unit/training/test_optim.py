"""Row-wise optimisers equal naive loops and torch's own, touch only the rows of the gradient, and keep their state."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import nn

from megalabel.errors import DataError, SettingError
from megalabel.recipes.optimisers import (
    AdamWSettings,
    LazyAdamWSettings,
    OptimiserSettings,
    RowAdagradSettings,
    SgdSettings,
)
from megalabel.training.optim import (
    LazyAdamW,
    RowAdagrad,
    clip_gradients,
    flatten_state,
    make_optimisers,
    restore_state,
    row_wise,
)

ROWS, DIM = 9, 4
KINDS = {"row_adagrad": RowAdagrad, "lazy_adamw": LazyAdamW}


def table(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Parameter:
    return nn.Parameter(torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(seed), dtype=dtype))


def sparse(rows: list[int], seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    values = torch.randn(len(rows), DIM, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    indices = torch.tensor(rows, dtype=torch.int64)[None]
    return torch.sparse_coo_tensor(indices, values, (ROWS, DIM), check_invariants=True)


def naive_row_adagrad(weights, steps, lr, eps, weight_decay):
    """One row, one entry at a time."""
    sums = np.zeros(len(weights))
    for rows, values in steps:
        total = {}
        for row, value in zip(rows, values, strict=True):
            total[row] = total.get(row, 0) + value
        for row, g in total.items():
            sums[row] += sum(x * x for x in g) / len(g)
            for j in range(len(g)):
                weights[row, j] -= lr * (g[j] / (np.sqrt(sums[row]) + eps) + weight_decay * weights[row, j])
    return weights, sums


row_lists = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=12), min_size=1, max_size=6)


@settings(max_examples=30, deadline=None)
@given(row_lists, st.sampled_from([0.0, 0.1]), st.sampled_from([2, 16_384]))
def test_row_adagrad_equals_a_naive_loop(lists, weight_decay, block):
    """Duplicates, empty gradients and small blocks included; dense gradients give the same."""
    start, whole = table(), table()
    expected = start.detach().numpy().copy()
    optimiser = RowAdagrad([start], lr=0.1, eps=1e-3, weight_decay=weight_decay)
    dense = RowAdagrad([whole], lr=0.1, eps=1e-3, weight_decay=weight_decay)
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_wise, "BLOCK", block)
        for number, rows in enumerate(lists):
            start.grad = sparse(rows, seed=number)
            steps.append((rows, start.grad._values().numpy()))
            whole.grad = start.grad.to_dense()
            optimiser.step()
            dense.step()
    expected, sums = naive_row_adagrad(expected, steps, 0.1, 1e-3, weight_decay)
    np.testing.assert_allclose(start.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(optimiser.state[start]["sum"].numpy(), sums, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(whole.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_lazy_adamw_equals_adamw_when_every_row_is_touched(form, dtype):
    ours, theirs = table(dtype=dtype), table(dtype=dtype)
    options = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    lazy, plain = LazyAdamW([ours], **options), torch.optim.AdamW([theirs], **options)
    for number in range(20):
        grad = sparse([*range(ROWS)] * 2, seed=number, dtype=dtype)
        ours.grad = grad if form == "sparse" else grad.to_dense()
        theirs.grad = grad.to_dense()
        lazy.step()
        plain.step()
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@settings(max_examples=15, deadline=None)
@given(row_lists)
def test_lazy_adamw_moves_each_row_as_adamw_run_on_that_row_alone(lists):
    ours = table()
    lazy = LazyAdamW([ours], lr=0.1, weight_decay=0.01)
    alone = [nn.Parameter(table()[row].detach().clone()) for row in range(ROWS)]
    plain = [torch.optim.AdamW([row], lr=0.1, weight_decay=0.01) for row in alone]
    for number, rows in enumerate(lists):
        ours.grad = sparse(rows, seed=number)
        lazy.step()
        for row in set(rows):
            alone[row].grad = ours.grad.to_dense()[row].clone()
            plain[row].step()
    torch.testing.assert_close(ours.detach(), torch.stack([row.detach() for row in alone]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_touched_stay_bit_for_bit(kind):
    start = table(dtype=torch.float32)
    before = start.detach().clone()
    optimiser = KINDS[kind]([start], lr=0.1, weight_decay=0.5)
    start.grad = sparse([7, 2, 7], dtype=torch.float32)
    optimiser.step()
    changed = (start.detach() != before).any(1)
    assert changed.nonzero()[:, 0].tolist() == [2, 7]
    for value in optimiser.state[start].values():
        assert value.reshape(ROWS, -1).ne(0).any(1).nonzero()[:, 0].tolist() == [2, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_gradient_changes_nothing(kind):
    start = table()
    before = start.detach().clone()
    optimiser = KINDS[kind]([start], lr=0.1, weight_decay=0.5)
    start.grad = sparse([])
    optimiser.step()
    start.grad = torch.zeros(ROWS, DIM, dtype=torch.float64)
    optimiser.step()
    assert torch.equal(start.detach(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_not_written_to(kind):
    start = table()
    start.grad = sparse([1, 3, 5]).coalesce()
    kept = start.grad.to_dense()
    KINDS[kind]([start], lr=0.1).step()
    assert torch.equal(start.grad.to_dense(), kept)


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_runs_agree_bit_for_bit(kind):
    """Two threads and many duplicates, where a careless sum would depend on the order."""
    rows = torch.randint(0, 3_000, (20_000,), generator=torch.Generator().manual_seed(1))
    values = torch.randn(20_000, 32, generator=torch.Generator().manual_seed(2))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results = []
        for _ in range(3):
            start = nn.Parameter(torch.ones(5_000, 32))
            optimiser = KINDS[kind]([start], lr=0.1)
            for _ in range(3):
                start.grad = torch.sparse_coo_tensor(rows[None], values, start.shape, check_invariants=False)
                optimiser.step()
            results.append(start.detach().clone())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_and_low_precision(kind):
    """A vector is a table of numbers; a bfloat16 table keeps float32 state, also after loading."""
    bias = nn.Parameter(torch.zeros(5))
    bias.grad = torch.tensor([0.0, 4.0, 0.0, -0.1, 0.0])
    KINDS[kind]([bias], lr=0.5).step()
    torch.testing.assert_close(bias.detach(), torch.tensor([0, -0.5, 0, 0.5, 0]))
    half = table(dtype=torch.bfloat16)
    half.grad = sparse([1, 2], dtype=torch.bfloat16)
    optimiser = KINDS[kind]([half], lr=0.5)
    optimiser.step()
    again = KINDS[kind]([half], lr=0.5)
    again.load_state_dict(optimiser.state_dict())
    for key, value in optimiser.state[half].items():
        assert value.dtype == (torch.int32 if key == "step" else torch.float32)
        assert again.state[half][key].dtype == value.dtype
        assert torch.equal(again.state[half][key], value)
        assert again.state[half][key].data_ptr() != value.data_ptr()


def test_a_row_first_touched_late_moves_by_the_rate():
    start = nn.Parameter(torch.zeros(2, 3))
    optimiser = LazyAdamW([start], lr=0.01)
    for step in range(200):
        start.grad = torch.zeros(2, 3)
        start.grad[0 if step < 199 else 1] = 1.0
        optimiser.step()
    torch.testing.assert_close(start[1].detach(), torch.full((3,), -0.01))


def test_errors_of_parameters_and_gradients_have_a_remedy():
    number = nn.Parameter(torch.tensor(1.0))
    number.grad = torch.tensor(1.0)
    with pytest.raises(SettingError, match="single number"):
        RowAdagrad([number]).step()
    start = table()
    start.grad = torch.eye(ROWS, DIM, dtype=torch.float64).to_sparse()
    with pytest.raises(SettingError, match="sparse in 2 dimensions"):
        RowAdagrad([start]).step()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(DIM, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.frozen = nn.Parameter(torch.zeros(2, 2), requires_grad=False)


def test_groups_have_their_kind_and_decay_only_matrices():
    model, labels = Model(), nn.Embedding(ROWS, DIM, sparse=True)
    groups = {
        "encoder": AdamWSettings(lr=1e-4, weight_decay=0.05, betas=(0.9, 0.98)),
        "labels": RowAdagradSettings(lr=1e-2, weight_decay=0.1),
    }
    made = make_optimisers(groups, {"encoder": model.named_parameters(), "labels": labels.named_parameters()})
    assert list(made) == ["encoder", "labels"]
    assert isinstance(made["encoder"], torch.optim.AdamW)
    assert made["encoder"].defaults["fused"] is True
    decay = {name: part["weight_decay"] for part in made["encoder"].param_groups for name in part["names"]}
    assert decay == {"layer.weight": 0.05, "layer.bias": 0.0, "norm.weight": 0.0, "norm.bias": 0.0}
    assert made["encoder"].param_groups[1]["betas"] == (0.9, 0.98)
    assert isinstance(made["labels"], RowAdagrad)
    assert made["labels"].param_groups[0]["weight_decay"] == 0.1
    empty = make_optimisers({"a": SgdSettings(lr=1.0), "b": LazyAdamWSettings(lr=1.0)}, {"a": [], "b": []})
    assert empty == {}


def test_every_setting_reaches_the_optimiser():
    documents = [
        {"kind": "adamw", "lr": 0.1, "weight_decay": 0.2, "betas": (0.5, 0.6), "eps": 1e-3},
        {"kind": "lazy_adamw", "lr": 0.1, "weight_decay": 0.2, "betas": (0.5, 0.6), "eps": 1e-3},
        {"kind": "row_adagrad", "lr": 0.1, "weight_decay": 0.2, "eps": 1e-3},
        {"kind": "sgd", "lr": 0.1, "weight_decay": 0.2, "momentum": 0.5},
    ]
    for document in documents:
        group = TypeAdapter(OptimiserSettings).validate_python(document)
        optimiser = make_optimisers({"all": group}, {"all": [("table", table())]})["all"]
        part = optimiser.param_groups[0]
        assert all(part[name] == value for name, value in document.items() if name != "kind")


def test_tables_follow_the_encoder():
    assert AdamWSettings(lr=0.1, betas=(0.5, 0.6)).rowwise() == LazyAdamWSettings(lr=0.1, betas=(0.5, 0.6))
    assert SgdSettings(lr=0.1, weight_decay=0.2).rowwise() == LazyAdamWSettings(lr=0.1, weight_decay=0.2)


@pytest.mark.parametrize("kind", ["adamw", "lazy_adamw", "row_adagrad", "sgd"])
def test_numbers_of_state(kind):
    group = TypeAdapter(OptimiserSettings).validate_python({"kind": kind, "lr": 0.1})
    start = table()
    start.grad = torch.ones_like(start)
    optimiser = make_optimisers({"all": group}, {"all": [("table", start)]})["all"]
    optimiser.step()
    held = sum(value.numel() for name, value in flatten_state(optimiser)[0].items())
    assert held - group.state_numbers(ROWS, DIM) == (kind == "adamw")  # the count of steps


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"kind": "adamv", "lr": 1}, "did you mean 'adamw'"),
        ({"kind": "row-adagrad", "lr": 1}, "did you mean 'row_adagrad'"),
        ({}, "lr: Field required"),
        ({"lr": -1.0}, "lr: Input should be greater than 0"),
        ({"lr": float("nan")}, "lr: Input should be"),
        ({"lr": 1, "weight_decay": float("inf")}, "weight_decay: Input should be a finite number"),
        ({"lr": 1, "betas": (0.9, 1.0)}, "less than 1"),
        ({"lr": 1, "eps": 0.0}, "eps: Input should be greater than 0"),
        ({"lr": 1, "momentum": 0.5}, "unknown key 'momentum'"),
        ({"kind": "row_adagrad", "lr": 1, "betas": (0.9, 0.99)}, "unknown key 'betas'"),
        ({"kind": "sgd", "lr": 1, "momentum": 1}, "momentum: Input should be less than 1"),
        ({"kind": "sgd", "lr": 1, "eps": 1e-3}, "unknown key 'eps'"),
    ],
)
def test_bad_settings_are_refused(document, words):
    with pytest.raises(ValidationError) as error:
        TypeAdapter(OptimiserSettings).validate_python(document)
    first = error.value.errors()[0]
    assert words in ".".join(map(str, first["loc"])) + ": " + first["msg"]


def test_groups_must_match_the_model():
    pairs, settings = list(Model().named_parameters()), AdamWSettings(lr=0.1)
    with pytest.raises(SettingError, match="the model has no such group"):
        make_optimisers({"all": settings, "heads": settings}, {"all": pairs})
    with pytest.raises(SettingError, match=r"'layer.weight' is in the parameter groups 'all' and 'more'"):
        make_optimisers({"all": settings, "more": settings}, {"all": pairs, "more": pairs})
    with pytest.raises(SettingError, match="no settings for the parameter group 'all'; did you mean 'al'"):
        make_optimisers({"al": settings}, {"all": pairs})


def test_clipping_counts_dense_and_sparse_gradients_together():
    first, second, third = table(), table(), table()
    first.grad, second.grad = torch.randn(ROWS, DIM, dtype=torch.float64), sparse([1, 1, 4])
    whole = torch.cat([first.grad, second.grad.to_dense()])
    norm = whole.norm().item()
    assert clip_gradients([first, second, third], max_norm=norm * 2) == pytest.approx(norm, rel=1e-12)
    torch.testing.assert_close(torch.cat([first.grad, second.grad.to_dense()]), whole)
    assert clip_gradients([first, second, third], max_norm=0.5) == pytest.approx(norm, rel=1e-12)
    torch.testing.assert_close(torch.cat([first.grad, second.grad.to_dense()]), whole * (0.5 / norm))
    assert second.grad.is_sparse
    assert clip_gradients([], 1.0) == 0.0
    with pytest.raises(SettingError, match="max_norm"):
        clip_gradients([first], 0.0)


def test_clipping_leaves_gradients_alone_when_the_norm_is_not_finite():
    first = table()
    first.grad = torch.ones(ROWS, DIM, dtype=torch.float64)
    first.grad[0, 0] = torch.inf
    assert clip_gradients([first], 1.0) == float("inf")
    assert first.grad[1, 1] == 1


KINDS_OF_ALL = ["adamw", "row_adagrad", "lazy_adamw", "sgd"]


def trained(kind: str, steps: range, model: Model, optimiser: torch.optim.Optimizer) -> None:
    for step in steps:
        x = torch.randn(6, DIM, generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        model.norm(model.layer(x)).pow(3).sum().backward()
        optimiser.step()


@pytest.mark.parametrize("kind", KINDS_OF_ALL)
def test_state_survives_json_and_training_resumes_bit_for_bit(kind):
    def make():
        torch.manual_seed(0)
        model = Model()
        group = TypeAdapter(OptimiserSettings).validate_python({"kind": kind, "lr": 0.01, "weight_decay": 0.1})
        return model, make_optimisers({"all": group}, {"all": model.named_parameters()})["all"]

    straight, optimiser = make()
    trained(kind, range(6), straight, optimiser)
    first, optimiser = make()
    trained(kind, range(3), first, optimiser)
    tensors, scalars = flatten_state(optimiser)
    assert all(isinstance(value, torch.Tensor) for value in tensors.values())
    scalars = json.loads(json.dumps(scalars))
    kept = {name: value.clone() for name, value in tensors.items()}
    second, optimiser = make()
    restore_state(optimiser, tensors, scalars)
    second.load_state_dict(first.state_dict())
    trained(kind, range(3, 6), second, optimiser)
    for ours, expected in zip(second.parameters(), straight.parameters(), strict=True):
        assert torch.equal(ours, expected)
    assert all(torch.equal(tensors[name], kept[name]) for name in kept)
    assert isinstance(optimiser.param_groups[0].get("betas", ()), tuple)


def test_state_of_another_model_is_refused():
    model = Model()
    optimiser = make_optimisers({"all": AdamWSettings(lr=1e-4)}, {"all": model.named_parameters()})["all"]
    trained("adamw", range(1), model, optimiser)
    tensors, scalars = flatten_state(optimiser)
    wide = nn.Linear(DIM, 2 * DIM)
    with pytest.raises(DataError, match=r"groups of \[1, 3\] parameters, this one of \[1, 1\]"):
        restore_state(torch.optim.AdamW([{"params": [wide.weight]}, {"params": [wide.bias]}]), tensors, scalars)
    with pytest.raises(DataError, match=r"0.exp_avg has shape \[4, 4\], its parameter has \[8, 4\]"):
        others = [{"params": [wide.weight]}, {"params": [nn.Parameter(torch.zeros(DIM)) for _ in range(3)]}]
        restore_state(torch.optim.AdamW(others), tensors, scalars)
    pairs = [(name.replace("layer", "dense"), value) for name, value in model.named_parameters()]
    with pytest.raises(DataError, match=r"'layer.weight' where this one has 'dense.weight'"):
        restore_state(make_optimisers({"all": AdamWSettings(lr=1e-4)}, {"all": pairs})["all"], tensors, scalars)
