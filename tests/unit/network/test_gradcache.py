"""The gradient cache gives the gradients of the plain call, holds one chunk, and replays randomness."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from megalabel.errors import DataError, SettingError
from megalabel.losses import DecoupledSoftmax, Softmax, SoftTopK, Symmetric, streamed
from megalabel.network import GradientCache
from megalabel.types import Tokens

ROWS, POOL, WIDTH, DIM = 7, 11, 5, 4


class Encoder(nn.Module):
    """A small encoder with dropout, a keyword argument and a count of its calls."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, DIM))
        self.shift = nn.Parameter(torch.zeros(DIM))
        self.calls = 0

    def forward(self, x, *, scale=None, add=None, power=1):
        self.calls += 1
        out = self.layers(x) ** power + self.shift
        out = out if scale is None else out * scale[:, None]
        return out if add is None else out + add["inner"]


def make(seed: int = 0, dropout: float = 0.3) -> Encoder:
    torch.manual_seed(seed)
    return Encoder(dropout).double()


def inputs(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def contrastive(queries, labels, temperature):
    """Decoupled softmax with two positives per query, written out."""
    scores = F.normalize(queries, dim=1) @ F.normalize(labels, dim=1).T / temperature
    rows = torch.arange(len(scores))
    positives = torch.zeros_like(scores, dtype=torch.bool)
    positives[rows, rows % scores.shape[1]] = positives[rows, (rows + 3) % scores.shape[1]] = True
    rest = scores.masked_fill(positives, -torch.inf).logsumexp(1, keepdim=True)
    return F.softplus(rest - scores)[positives].mean()


def chunked(encoder, size, x, **kwargs):
    """The plain graph, made in the same chunks so that dropout draws the same numbers."""
    parts = []
    for begin in range(0, len(x), size):
        rows = slice(begin, begin + size)
        parts.append(encoder(x[rows], **{key: value[rows] for key, value in kwargs.items()}))
    return torch.cat(parts)


def gradients(*modules):
    return [p.grad.clone() for module in modules for p in module.parameters()]


@pytest.mark.parametrize("size", [1, 3, ROWS, ROWS + 1, POOL, POOL + 1])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "two encoders"])
def test_gradients_equal_the_plain_ones_with_dropout_on(size, shared):
    actual = []
    for cached in (False, True):
        first = make()
        second = first if shared else make(5)
        temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        scale = torch.linspace(0.5, 1.5, ROWS, dtype=torch.float64)
        torch.manual_seed(3)
        if cached:
            cache = GradientCache(chunk_size=size)
            queries = cache.encode(first, inputs(), scale=scale)
            labels = cache.encode(second, inputs(POOL, 2))
        else:
            queries = chunked(first, size, inputs(), scale=scale)
            labels = chunked(second, size, inputs(POOL, 2))
        loss = contrastive(queries, labels, temperature)
        torch.rand(2)
        loss.backward()
        actual.append([queries.detach(), labels.detach(), loss.detach(), temperature.grad, *gradients(first, second)])
        actual[-1].append(torch.rand(3))  # the generator goes on where it would have
    for plain, cached in zip(*actual, strict=True):
        torch.testing.assert_close(cached, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", [DecoupledSoftmax(), SoftTopK(3), Symmetric(Softmax())], ids=repr)
def test_with_the_losses_of_this_library_plain_and_streamed(loss):
    targets = torch.zeros(ROWS, POOL, dtype=torch.float64)
    targets[torch.arange(ROWS), torch.arange(ROWS)] = targets[:, -1] = 1
    actual = []
    for how in ("plain", "cached", "cached and streamed"):
        encoder = make()
        temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        torch.manual_seed(2)
        encode = partial(chunked, encoder, 3) if how == "plain" else partial(GradientCache(3).encode, encoder)
        queries, labels = encode(inputs()), encode(inputs(POOL, 2))
        if how == "cached and streamed":
            streamed(loss, queries, labels, targets, temperature=temperature, block=4).backward()
        else:
            loss(queries @ labels.T / temperature, targets).backward()
        actual.append([temperature.grad, *gradients(encoder)])
    torch.testing.assert_close(actual[1], actual[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(actual[2], actual[0], rtol=1e-8, atol=1e-10)


def test_without_dropout_chunks_do_not_matter():
    expected = None
    for size in (100, 1, 2, 3, 4):
        encoder = make(dropout=0.0)
        cache = GradientCache(size)
        contrastive(cache.encode(encoder, inputs()), cache.encode(encoder, inputs(POOL, 2)), 0.3).backward()
        expected = expected or gradients(encoder)
        torch.testing.assert_close(gradients(encoder), expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 9), pool=st.integers(4, 9), size=st.integers(1, 10), seed=st.integers(0, 1000))
def test_any_sizes(rows, pool, size, seed):
    actual = []
    for cached in (False, True):
        encoder = make(seed)
        x, z = inputs(rows, seed), inputs(pool, seed + 1)
        torch.manual_seed(seed)
        encode = GradientCache(size).encode if cached else partial(lambda e, x, size: chunked(e, size, x), size=size)
        contrastive(encode(encoder, x), encode(encoder, z), 0.7).backward()
        actual.append(gradients(encoder))
    torch.testing.assert_close(actual[1], actual[0], rtol=1e-10, atol=1e-12)


def test_every_form_of_input_is_cut_by_rows():
    encoder = make(dropout=0.0)
    x, add = inputs(), inputs(ROWS, 9)[:, :DIM]
    expected = encoder(x, add={"inner": add}, power=2)
    cache = GradientCache(3)
    torch.testing.assert_close(cache.encode(encoder, x, add={"inner": add}, power=2), expected)
    torch.testing.assert_close(cache.encode(lambda ragged, e: e(torch.stack(ragged)), list(x), encoder), encoder(x))
    torch.testing.assert_close(cache.encode(lambda a: encoder(torch.from_numpy(a)), x.numpy()), encoder(x))
    torch.testing.assert_close(cache.encode(lambda *, tokens: encoder(tokens), tokens=x), encoder(x))


@pytest.mark.parametrize("kind", ["lists", "tensors", "tokens"])
def test_ragged_token_ids(kind):
    bag = nn.EmbeddingBag(20, DIM, mode="mean").double()
    texts = [[1, 2], [3], [4, 5, 6], [], [7], [19, 0]]
    offsets = np.cumsum([0, *map(len, texts)])
    ragged = {
        "lists": texts,
        "tensors": [torch.tensor(text, dtype=torch.int64) for text in texts],
        "tokens": Tokens(np.array([token for text in texts for token in text], dtype=np.uint16), offsets),
    }[kind]

    def encode(rows):
        assert type(rows) is type(ragged)
        rows = [list(map(int, rows[i])) for i in range(len(rows))]
        starts = np.cumsum([0, *map(len, rows)])[:-1]
        return bag(torch.tensor([token for row in rows for token in row], dtype=torch.int64), torch.tensor(starts))

    encode(ragged).pow(2).sum().backward()
    plain = bag.weight.grad.clone()
    bag.weight.grad = None
    GradientCache(2).encode(encode, ragged).pow(2).sum().backward()
    torch.testing.assert_close(bag.weight.grad, plain)


def test_one_chunk_runs_the_encoder_once_and_more_run_it_twice():
    for size, calls in [(ROWS, 1), (ROWS + 1, 1), (3, 6)]:
        encoder = make()
        GradientCache(size).encode(encoder, inputs()).sum().backward()
        assert encoder.calls == calls


def test_without_gradients_there_is_one_pass_and_no_graph():
    encoder = make()
    with torch.no_grad():
        assert not GradientCache(3).encode(encoder, inputs()).requires_grad
    for parameter in encoder.parameters():
        parameter.requires_grad = False
    assert not GradientCache(3).encode(encoder, inputs()).requires_grad
    assert encoder.calls == 6


def test_no_rows_are_fine():
    encoder = make(dropout=0.0)
    cache = GradientCache(2)
    queries, nothing = cache.encode(encoder, inputs()), cache.encode(encoder, inputs(0))
    assert nothing.shape == (0, DIM)
    (queries.sum() + nothing.sum()).backward()
    assert encoder.shift.grad.tolist() == [ROWS] * DIM

    class Fussy(nn.Linear):
        dim = DIM

        def forward(self, x):
            assert len(x), "never called without rows"
            return super().forward(x)

    assert cache.encode(Fussy(WIDTH, DIM), []).shape == (0, DIM)
    assert cache.encode(Fussy(WIDTH, DIM, device="meta"), inputs(0)).device == torch.device("meta")


def test_vectors_the_loss_ignores_are_not_replayed():
    encoder, other = make(), make(1)
    cache = GradientCache(2)
    queries, unused = cache.encode(encoder, inputs()), cache.encode(other, inputs())
    queries.sum().backward()
    assert unused.requires_grad and other.calls == 4 and other.shift.grad is None and encoder.calls == 8


def test_backward_twice_adds_up_and_two_steps_do_not_mix():
    encoder = make()
    cache = GradientCache(2)
    torch.manual_seed(0)
    first, second = cache.encode(encoder, inputs()).pow(2).sum(), cache.encode(encoder, inputs(seed=4)).pow(2).sum()
    first.backward(retain_graph=True)
    once = gradients(encoder)
    first.backward()
    torch.testing.assert_close(gradients(encoder), [2 * gradient for gradient in once])
    encoder.zero_grad()
    second.backward()
    expected = make()
    torch.manual_seed(0)
    chunked(expected, 2, inputs())
    chunked(expected, 2, inputs(seed=4)).pow(2).sum().backward()
    torch.testing.assert_close(gradients(encoder), gradients(expected))


def test_a_failed_backward_leaves_nothing_behind():
    encoder = make(dropout=0.0)
    cache = GradientCache(2)

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("broken")

    vectors = cache.encode(encoder, inputs())
    hurt = Broken.apply(torch.ones((), dtype=torch.float64, requires_grad=True))
    with pytest.raises(ValueError, match="broken"):
        (hurt + vectors.sum()).backward()
    encoder.zero_grad()
    cache.encode(encoder, inputs()).sum().backward()
    assert encoder.shift.grad.tolist() == [ROWS] * DIM


def test_a_scaled_loss_scales_every_gradient():
    actual = []
    for scale in (1.0, 1024.0):
        encoder = make(dropout=0.0)
        temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        cache = GradientCache(2)
        loss = contrastive(cache.encode(encoder, inputs()), cache.encode(encoder, inputs(POOL, 2)), temperature)
        (loss * scale).backward()
        actual.append([gradient / scale for gradient in [temperature.grad, *gradients(encoder)]])
    torch.testing.assert_close(actual[1], actual[0])


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
def test_autocast_is_the_same_in_both_rounds(inside):
    actual = []
    for size in (4, 100):  # 4: queries in one chunk with graph after labels without, the case that loses gradients
        torch.manual_seed(0)
        encoder = Encoder(0.0)
        cache = GradientCache(size)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            labels = cache.encode(encoder, inputs(POOL, 2).float())
            queries = cache.encode(encoder, inputs(4).float())
            assert (
                queries.dtype == labels.dtype == torch.float32
                and encoder.layers(inputs().float()).dtype == torch.bfloat16
            )
            loss = contrastive(queries, labels, 0.5)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        actual.append(gradients(encoder))
    torch.testing.assert_close(actual[0], actual[1], rtol=0.05, atol=2e-3)


def test_running_statistics_are_updated_in_the_first_round_only():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(WIDTH, DIM), nn.BatchNorm1d(DIM)).double()
    GradientCache(3).encode(encoder, inputs(6)).pow(3).sum().backward()
    assert encoder[1].num_batches_tracked == 2
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(WIDTH, DIM), nn.BatchNorm1d(DIM)).double()
    chunked(plain, 3, inputs(6)).pow(3).sum().backward()
    torch.testing.assert_close(encoder[1].running_mean, plain[1].running_mean)
    torch.testing.assert_close(gradients(encoder), gradients(plain))


def test_an_encoder_that_writes_into_its_input_is_replayed_from_the_original():
    layer = nn.Linear(WIDTH, DIM, bias=False).double()

    def encode(x):
        out = layer(x.clone())
        x.zero_()
        return out

    x = inputs()
    GradientCache(2).encode(encode, x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(DIM, WIDTH))
    torch.testing.assert_close(x, inputs())


def test_a_leaf_among_the_inputs_gets_its_gradient_and_a_computed_one_is_refused():
    encoder = make(dropout=0.0)
    x = inputs().requires_grad_()
    GradientCache(2).encode(encoder, x).pow(2).sum().backward()
    actual, x.grad = x.grad, None
    encoder(x).pow(2).sum().backward()
    torch.testing.assert_close(actual, x.grad)
    with pytest.raises(SettingError, match="computation that needs a gradient"):
        GradientCache(2).encode(encoder, x * 2)


class Held:
    """A saved activation that counts its bytes while it lives."""

    now = peak = 0

    def __init__(self, tensor):
        self.tensor, self.bytes = tensor, tensor.numel() * tensor.element_size()
        Held.now += self.bytes
        Held.peak = max(Held.peak, Held.now)

    def __del__(self):
        Held.now -= self.bytes


def peak_of_saved_bytes(step) -> int:
    Held.now = Held.peak = 0
    with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
        step()
    return Held.peak


def test_activations_of_one_chunk_only_are_held():
    encoder = nn.Sequential(
        nn.Linear(WIDTH, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, DIM)
    ).double()
    x = inputs(128)
    peaks = {}
    for size in (4, 16, 128):
        peaks[size] = peak_of_saved_bytes(
            lambda size=size: GradientCache(size).encode(encoder, x).pow(2).sum().backward()
        )
    weights = sum(p.numel() * p.element_size() for p in encoder.parameters())
    assert peaks[128] > 128 * 512 * 8
    assert peaks[16] - weights < (peaks[128] - weights) / 6
    assert peaks[4] < peaks[16]


def test_mistakes_give_one_line():
    encoder = make()
    with pytest.raises(SettingError, match="chunk_size is 0; give at least 1"):
        GradientCache(0).encode(encoder, inputs())
    with pytest.raises(DataError, match="argument 1 has 7, scale has 3"):
        GradientCache(2).encode(encoder, inputs(), scale=torch.ones(3))
    with pytest.raises(DataError, match="nothing to cut"):
        GradientCache(2).encode(encoder, 3)
    with pytest.raises(DataError, match=r"returned \(4,\) for 2 rows"):
        GradientCache(2).encode(lambda x: encoder(x).sum(0), inputs())
    with pytest.raises(DataError, match="returned dict for 2 rows"):
        GradientCache(2).encode(lambda x: {"vectors": encoder(x)}, inputs())


def test_a_method_is_resolved_to_its_module():
    class Model(nn.Module):
        dim = DIM

        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(WIDTH).double()

        def encode(self, x, *, times):
            return self.norm(x)[:, :DIM] * times

    model = Model()
    GradientCache(3).encode(partial(model.encode, times=2.0), inputs(6)).sum().backward()
    assert model.norm.num_batches_tracked == 2
    assert GradientCache(3).encode(model.encode, []).shape == (0, DIM)
