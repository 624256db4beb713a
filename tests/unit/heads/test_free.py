import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import sparse

from megalabel.graphs import random_walk
from megalabel.heads import FreeSettings
from megalabel.losses import BCE, streamed


def test_rows_of_a_pool_have_a_sparse_gradient_and_need_no_text():
    head = FreeSettings(normalise=False, bias=True, loss="bce").build(size=5, encoder_dim=3)
    assert not head.needs_text
    vectors, bias = head.labels(torch.tensor([1, 4]), None)
    (vectors.sum() + bias.sum()).backward()
    assert head.table.grad.is_sparse
    assert head.table.grad.coalesce().indices().tolist() == [[1, 4]]
    everything, _ = head.labels(None, None)
    assert torch.equal(everything, head.table)


def test_the_rows_of_a_shard_equal_those_of_the_full_table():
    tables = []
    for shard in (None, range(2), range(2, 5)):
        torch.manual_seed(3)
        tables.append(FreeSettings(loss="bce").build(size=5, encoder_dim=3, shard=shard).table)
    assert torch.equal(torch.cat(tables[1:]), tables[0])


def test_rows_are_dropped_in_training_alone():
    torch.manual_seed(0)
    head = FreeSettings(row_dropout=0.5, normalise=False, loss="bce").build(size=50, encoder_dim=8)
    dropped, _ = head.labels(None, None)
    assert 100 < (dropped == 0).sum() < 300
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * head.table[kept])
    assert torch.equal(head.eval().labels(None, None)[0], head.table)


def test_groups_of_labels_have_no_text_to_start_from():
    with pytest.raises(ValidationError, match="groups of labels have no text: choose points or random"):
        FreeSettings(space="clusters", init="mix", loss="bce")


def test_rows_can_start_from_a_normal_distribution():
    tables = []
    for shard in (None, range(300), range(300, 700)):
        torch.manual_seed(3)
        tables.append(
            FreeSettings(init="normal", loss="bce").build(size=700, encoder_dim=30, shard=shard).table.detach()
        )
    assert torch.equal(torch.cat(tables[1:]), tables[0])
    assert abs(tables[0].std().item() - 0.02) < 1e-3 and abs(tables[0].mean().item()) < 1e-3


class Texts:
    """Stands in for the init data of a network: given vectors of label texts."""

    def __init__(self, targets, vectors, shard=None):
        self.targets, self.vectors, self.seed = targets, vectors, 5
        self.shard = range(len(vectors)) if shard is None else shard

    def all_texts(self):
        return self.vectors


@pytest.mark.parametrize("shard", [None, range(2, 5)])
def test_rows_can_start_as_the_mean_of_the_texts_that_walks_visit(shard):
    targets = sparse.csr_matrix(np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]], dtype=np.float32))
    vectors = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    head = FreeSettings(init="graph", loss="bce").build(size=5, encoder_dim=4, shard=shard)
    head.init(Texts(targets, vectors, shard))
    visits = random_walk(targets, length=400, reset=0.8, top=10, head=None, seed=5).toarray()
    expected = np.zeros((5, 4))
    for label in range(5):
        for other in range(5):
            scale = np.sqrt(visits[label].sum() * visits[:, other].sum())
            expected[label] += visits[label, other] / scale * vectors[other].numpy()
    expected = torch.from_numpy(expected).float()
    torch.testing.assert_close(head.table.detach(), expected if shard is None else expected[2:5])
    assert torch.allclose(expected[4], vectors[4])  # no points: its shard text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_half_table_scores_in_float32(dtype):
    head = FreeSettings(dtype=dtype, loss="bce").build(size=6, encoder_dim=4)
    assert str(head.table.dtype) == f"torch.{dtype}"
    for pool, search in ((torch.tensor([1, 4]), False), (None, False), (None, True)):
        vectors, _ = head.labels(pool, None, search=search)
        assert vectors.dtype == torch.float32
        torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(vectors)))
    plain = FreeSettings(dtype=dtype, normalise=False, loss="bce").build(size=6, encoder_dim=4)
    assert plain.labels(None, None)[0] is plain.table  # no copy of all labels in float32
    assert plain.labels(torch.tensor([0]), None)[0].dtype == torch.float32
    plain.labels(torch.tensor([0, 3]), None)[0].sum().backward()
    assert plain.table.grad.is_sparse and plain.table.grad.dtype == plain.table.dtype


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_half_table_has_the_gradient_of_its_numbers_in_float32(dtype):
    torch.manual_seed(0)
    head = FreeSettings(dtype=dtype, normalise=False, loss="bce").build(size=40, encoder_dim=8)
    queries, targets = torch.randn(6, 8), (torch.rand(6, 40) < 0.1).float()
    streamed(BCE(reduction="sum"), queries, head.labels(None, None)[0], targets, block=9).backward()
    exact = head.table.detach().float().requires_grad_()
    BCE(reduction="sum")(queries @ exact.T, targets).backward()
    assert head.table.grad.dtype == head.table.dtype
    torch.testing.assert_close(head.table.grad, exact.grad.to(head.table.dtype))
