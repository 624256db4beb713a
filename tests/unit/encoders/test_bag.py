"""The bag encoder: initial values, weights, sums and gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from megalabel.encoders import BagEncoder, load_encoder
from megalabel.encoders.bag import weighted_bag
from megalabel.errors import DataError, SettingError, WriteError
from megalabel.types import Tokens

SMALL = {"dim": 32, "words": 128, "bigrams": 128, "characters": 0}
ROWS = 9  # of a small table


@pytest.fixture
def model(tmp_path):
    """A folder with a tokenizer of three words and their vectors of size 4, the last direction the weakest."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1, "shoe": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vectors = torch.tensor([[3.0, 0, 0, 0.01], [0, 2, 0, 0.01], [0, 0, 1, 0.01]])
    save_file({"bert.embeddings.word_embeddings.weight": vectors.half()}, tmp_path / "model.safetensors")
    return tmp_path


def test_vector_is_the_weighted_sum_over_the_norm_of_the_weights():
    encoder = BagEncoder(None, **SMALL).eval()
    tokens = encoder.fit(encoder.tokenise(["red shoe", "blue shoe", "hat"])).tokenise(["red shoe shoe"])
    rows = torch.from_numpy(tokens.ids.astype(np.int64))
    w = encoder.weights[rows]
    x = (w.unsqueeze(1) * encoder.table[rows]).sum(0) / w.norm()
    expected = x + torch.relu(encoder.layer @ x)
    torch.testing.assert_close(encoder(tokens)[0], expected)
    plain = BagEncoder(None, **SMALL, residual=False)(tokens)
    assert 0.5 < plain.norm().item() < 1.5  # rows are nearly at right angles


def test_relu_of_the_vector():
    """That of DeepXML; after the residual layer if there is one."""
    texts = ["red shoe", "a blue, blue hat", ""]
    for residual in (True, False):
        plain, cut = (BagEncoder(None, **SMALL, residual=residual, activation=kind) for kind in ("none", "relu"))
        tokens = plain.tokenise(texts)
        vectors = plain.encode(tokens)
        assert (vectors < 0).any()
        assert torch.equal(cut.encode(tokens), vectors.clamp_min(0))
    with pytest.raises(SettingError, match="activation is 'tanh'; give none or relu"):
        BagEncoder(None, **SMALL, activation="tanh")


def test_weights_start_from_idf():
    encoder = BagEncoder(None, dim=2, words=2**12, bigrams=2**12, characters=0)
    tokens = encoder.tokenise(["red red shoe", "red hat", "shoe", ""])
    encoder.fit(tokens)

    def weight(text):
        return encoder.weights[int(encoder.tokenise([text]).ids[-1])].item()

    def idf(seen):
        return (1 + np.log(5 / (seen + 1))) / (1 + np.log(5))

    assert weight("red") == pytest.approx(idf(2))  # a text counts once
    assert weight("hat") == pytest.approx(idf(1))
    assert weight("never") == pytest.approx(1)
    assert weight("red shoe") == pytest.approx(0.5 * idf(1))  # its pair


def test_fit_does_not_change_tokens():
    encoder = BagEncoder(None, **SMALL)
    tokens = encoder.tokenise(["b a b a", "a"])
    ids, offsets = tokens.ids.copy(), tokens.offsets.copy()
    for array in (tokens.ids, tokens.offsets):
        array.flags.writeable = False
    encoder.fit(tokens)
    assert np.array_equal(tokens.ids, ids) and np.array_equal(tokens.offsets, offsets)


def test_token_vectors_are_the_start(model):
    bag = BagEncoder(str(model), dim=4, words=0, bigrams=0, characters=0, residual=False)
    assert torch.allclose(bag.table.norm(dim=1).mean(), torch.tensor(1.0))
    expected = torch.tensor([[3.0, 0, 0, 0.01], [0, 2, 0, 0.01], [0, 0, 1, 0.01]])
    assert torch.allclose(bag.table * expected.norm(dim=1).mean(), expected, atol=1e-3)
    cut = BagEncoder(str(model), dim=2, words=0, bigrams=0, characters=0, residual=False)
    lengths = cut.table.norm(dim=1)
    assert lengths[0] > lengths[1] > 0.5  # the main directions are the first two words'
    assert lengths[2] < 0.01
    wide = BagEncoder(str(model), dim=6, words=8, bigrams=0, characters=0)
    assert torch.equal(wide.table[:3, 4:], torch.zeros(3, 2))
    assert wide.table[3:].abs().min() > 0


def test_tokenizer_without_weights_starts_at_random(model):
    (model / "model.safetensors").unlink()
    bag = BagEncoder(str(model), dim=4, words=0, bigrams=0, characters=0)
    assert bag.table.shape == (3, 4) and bag.table.abs().min() > 0


def test_broken_weights_of_the_source_give_one_line(model):
    (model / "model.safetensors").write_bytes(b"x")
    with pytest.raises(SettingError, match=r"model\.safetensors"):
        BagEncoder(str(model))


def test_seed_decides_the_start():
    first, same, other = (BagEncoder(None, **SMALL, seed=seed).table for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_auto_source_is_resolved(monkeypatch):
    monkeypatch.setattr("megalabel.encoders.bag.has_minilm", lambda: False)
    assert BagEncoder(**SMALL).config()["source"] is None


def test_auto_starts_from_minilm_if_installed(tmp_path):
    bag = BagEncoder("auto", dim=384, words=0, bigrams=0, characters=0)
    assert bag.source == "minilm"
    assert bag.table.shape == (30_522, 384)
    texts = ["sort a list", "order the sequence", "bake bread"]
    vectors = bag.encode(bag.tokenise(texts), normalise=True)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_a_saved_bag_with_other_settings_is_an_error(tmp_path):
    BagEncoder(None, **SMALL).save(tmp_path / "bag")
    with pytest.raises(DataError, match="was expected"):
        BagEncoder(str(tmp_path / "bag"), **(SMALL | {"dim": 16}))
    again = BagEncoder(str(tmp_path / "bag"), **SMALL)  # same settings: go on from its weights
    assert torch.equal(again.table, load_encoder(tmp_path / "bag").table)


def test_a_full_disk_gives_one_line_and_keeps_the_old_folder(tmp_path, monkeypatch):
    encoder = BagEncoder(None, **SMALL)
    encoder.save(tmp_path / "bag")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(WriteError, match="No space left"):
        BagEncoder(None, **SMALL, seed=9).save(tmp_path / "bag")
    assert torch.equal(load_encoder(tmp_path / "bag").table, encoder.table)
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]


def test_it_learns_pairs_that_share_no_word():
    """A dozen pairs of unlike texts become each other's nearest."""
    queries, labels = ([f"{word}{i}" for i in range(12)] for word in ("word", "name"))
    encoder = BagEncoder(None, dim=16, words=64, bigrams=0, characters=64)
    tokens = [encoder.tokenise(texts) for texts in (queries, labels)]
    encoder.fit(tokens[0] + tokens[1])
    sparse = torch.optim.SparseAdam([encoder.table], lr=0.05)
    for _ in range(20):
        a, b = (torch.nn.functional.normalize(encoder(part), dim=1) for part in tokens)
        loss = torch.nn.functional.cross_entropy(a @ b.T / 0.05, torch.arange(12))
        encoder.zero_grad()
        loss.backward()
        sparse.step()
    a, b = (encoder.encode(part, normalise=True) for part in tokens)
    assert (a @ b.T).argmax(dim=1).tolist() == list(range(12))


def test_thinned_in_training_only():
    encoder = BagEncoder(None, **SMALL, residual=False, thin=0.5)
    tokens = encoder.tokenise(["one two three four five six seven eight"] * 200)
    torch.manual_seed(4)
    first = encoder.train()(tokens)
    torch.manual_seed(4)
    again = encoder(tokens)
    torch.testing.assert_close(first, again, rtol=0, atol=0)  # the same draw
    assert len(torch.unique(first, dim=0)) > 150  # another for every text
    whole = encoder.eval()(tokens)
    assert len(torch.unique(whole, dim=0)) == 1
    near = torch.cosine_similarity(first, whole)
    assert 0.5 < near.mean() < 0.85  # of the features about half are left: cos = sqrt(1/2)


@pytest.mark.parametrize("thin", [-0.1, 1.0])
def test_thin_must_be_below_one(thin):
    with pytest.raises(SettingError, match="thin"):
        BagEncoder(None, **SMALL, thin=thin)


def tokens_of(rows):
    return Tokens(
        np.array([row for text in rows for row in text], dtype=np.uint32),
        np.concatenate([[0], np.cumsum([len(text) for text in rows])]).astype(np.int64),
    )


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, ROWS - 1), max_size=6), max_size=5), st.integers(0, 99))
def test_sums_and_gradients_equal_dense_torch(rows, seed):
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
    actual = weighted_bag(table, weights, tokens_of(rows))
    gradients = []
    for sums, squares in (actual, expected):
        table.grad = weights.grad = None
        ((sums * aims[0]).sum() + (squares * aims[1]).sum()).backward()
        gradients.append((table.grad, weights.grad))
    for ours, theirs in zip([*actual, *gradients[0]], [*expected, *gradients[1]], strict=True):
        torch.testing.assert_close(ours.to_dense(), theirs)


def test_gradient_holds_only_rows_of_the_step_once_and_in_order():
    table, weights = torch.randn(ROWS, 4, requires_grad=True), torch.ones(ROWS, requires_grad=True)
    weighted_bag(table, weights, tokens_of([[7, 2, 2], [], [2, 5]]))[0].sum().backward()
    for gradient in (table.grad, weights.grad):
        assert gradient.is_sparse
        assert gradient._indices().tolist() == [[2, 5, 7]]


def test_frozen_parts_do_not_change():
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
