"""Each collective operation of the ranks gives the result of one process."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

import megalabel as ml
from megalabel.batching.clusters import balanced_clusters
from megalabel.errors import DataError, WriteError
from megalabel.heads.free import FreeSettings
from megalabel.index import ExactIndex
from megalabel.ranks import ALONE
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_encoders, build_network
from megalabel.training.checkpoint import load_checkpoint, save_checkpoint
from megalabel.training.checkpoint.state import collect_state, load_weights, restore_optimisers
from megalabel.training.distributed import join
from megalabel.training.distributed.cluster import cluster_queries
from megalabel.training.distributed.search import LabelSearch
from megalabel.training.loop import Loop
from megalabel.training.optim import clip_gradients, sum_gradients
from megalabel.training.phase import Texts

WORLD, LABELS = 3, 10


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gathers(ranks, folder):
    """Rows of uneven shares, and gradients that are whole or to be summed."""
    whole, weight = draw(0, 5, 2), draw(1, 5, 2)
    own = ranks.share(5)
    for summed in (False, True):
        part = whole[own.start : own.stop].clone().requires_grad_()
        actual = ranks.gather_with_gradient(part, ranks.sizes(5), summed=summed)
        assert torch.equal(actual, whole)
        (actual * weight).sum().backward()
        assert torch.allclose(part.grad, (ranks.world if summed else 1) * weight[own.start : own.stop])
    value = torch.tensor(2.0, requires_grad=True)
    (3 * ranks.grad_on_rank0(value)).backward()
    assert ranks.sum(value.grad) == 3


def gradients(ranks, folder):
    """Dense ones, sparse ones with few rows and with many, and those that some ranks or all do not have."""
    for rows, seen in ((40, 4), (6, 4)):  # lists of rows, then tables
        dense, table, some, none = (nn.Parameter(torch.zeros(rows, 2, dtype=torch.float64)) for _ in range(4))
        parts, lists = draw(2, ranks.world, rows, 2), draw(3, ranks.world, seen, 2)
        places = torch.stack([torch.arange(seen) + rank for rank in range(ranks.world)])
        dense.grad = parts[ranks.rank].clone()
        if ranks.rank:
            table.grad = torch.sparse_coo_tensor(places[ranks.rank][None], lists[ranks.rank], table.shape)
        if ranks.rank == 1:
            some.grad = parts[1].clone()
        sum_gradients([dense, table, some, none], ranks)
        expected = torch.zeros(rows, 2, dtype=torch.float64)
        expected.index_add_(0, places[1:].flatten(), lists[1:].flatten(0, 1))
        assert torch.allclose(dense.grad, parts.sum(0))
        assert table.grad.is_sparse and torch.allclose(table.grad.to_dense(), expected)
        assert table.grad.coalesce().indices()[0].tolist() == sorted(set(places[1:].flatten().tolist()))
        assert torch.equal(some.grad, parts[1])
        assert none.grad is None


def clipping(ranks, folder):
    own = ranks.share(LABELS)
    common, table = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(len(own), 2))
    whole = draw(4, LABELS, 2).float()
    common.grad, table.grad = torch.ones(3), whole[own.start : own.stop].clone()
    norm = clip_gradients([common, table], 0.5, sharded=[table], ranks=ranks)
    expected = float((3 + whole.square().sum()).sqrt())
    assert norm == pytest.approx(expected, rel=1e-6)
    assert torch.allclose(table.grad, whole[own.start : own.stop] * 0.5 / expected)


def searches(ranks, folder):
    """Ties go to the lower id, wherever it lies; excluded pairs and short shards leave no gap."""
    labels = draw(5, LABELS, 3).float()
    labels[7] = labels[2] = labels[0]
    queries = torch.cat([draw(6, 20, 3).float(), labels[:1]])
    exclude = sparse.random(21, LABELS, 0.3, format="csr", random_state=0)
    own = ranks.share(LABELS)
    here = LabelSearch(ExactIndex(labels[own.start : own.stop]), LABELS, ranks)
    for k in (1, 4, 13):
        for out in (None, exclude):
            actual, expected = (index.search(queries, k, exclude=out) for index in (here, ExactIndex(labels)))
            np.testing.assert_array_equal(actual.ids, expected.ids)
            np.testing.assert_array_equal(actual.scores, expected.scores)


def clusters(ranks, folder):
    vectors = draw(7, 500, 4).float()
    mine = np.arange(ranks.rank, 500, ranks.world)
    actual = cluster_queries(vectors[mine], mine, 500, 30, seed=3, ranks=ranks)
    np.testing.assert_array_equal(actual, balanced_clusters(vectors, 30, seed=3))


def starts(ranks, folder):
    """The rows of a shard start as they would in the whole table, and so does all that comes after."""
    made = []
    for shard in (None, ranks.share(LABELS)):
        torch.manual_seed(5)
        settings = FreeSettings(dim=3, projection="linear", bias=True, loss="bce")
        head = settings.build(size=LABELS, encoder_dim=4, shard=shard)
        made.append((head, torch.rand(1)))
    (whole, after), (part, same) = made
    shard = ranks.share(LABELS)
    assert torch.equal(part.table, whole.table[shard.start : shard.stop])
    assert part.bias.shape == (len(shard),)
    assert after == same


def checkpoints(ranks, folder):
    """Written by three, read by three and by one; what one writes three can read; all fail together."""
    whole, own = draw(8, LABELS, 2), ranks.share(LABELS)
    rows = {"table": whole[own.start : own.stop]}
    saved = save_checkpoint(
        folder / "many", 7, {"w": torch.ones(2)}, {"epoch": 1}, rows=rows, ranks=ranks, tags=["best"]
    )
    assert len(list(saved.glob("rows-*"))) == ranks.world
    actual = load_checkpoint(folder / "many", tag="best", ranks=ranks)
    assert torch.equal(actual.part("table", own), rows["table"])
    assert torch.equal(actual.part("table", None), whole)
    assert torch.equal(actual.part("table", range(2, 9)), whole[2:9])
    assert actual.names() == {"w", "table"}
    ranks.on_rank0(lambda: save_checkpoint(folder / "one", 3, {}, {}, rows={"table": whole}))
    assert torch.equal(load_checkpoint(folder / "one", ranks=ranks).part("table", own), rows["table"])
    with pytest.raises(DataError, match="no checkpoint"):
        load_checkpoint(folder / "none", ranks=ranks)
    (folder / "file").touch()
    with pytest.raises(WriteError, match="could not save"):
        save_checkpoint(folder / "file", 1, {}, {}, rows=rows, ranks=ranks)
    unreadable = {"table": rows["table"]} if ranks.rank else {}
    if ranks.rank == 2:
        unreadable = {"table": _NoRoom()}
    with pytest.raises(WriteError, match="rank 2 could not write"):
        save_checkpoint(folder / "many", 8, {}, {}, rows=unreadable, ranks=ranks)
    if ranks.first:
        assert load_checkpoint(folder / "many").step == 7
        with (saved / "rows-00001.safetensors").open("r+b") as out:
            out.seek(-1, 2)
            out.write(b"?")
        with pytest.raises(DataError, match=r"rows-00001.safetensors was changed"):
            load_checkpoint(folder / "many")


def states(ranks, folder):
    """Weights and optimisers of every kind come back in one process, and from there in three."""
    data = ml.load("synthetic:points=60,labels=10,seed=2")
    changes = [
        "encoder={kind: bag, source: null, options: {dim: 6, words: 64, bigrams: 0, characters: 0}}",
        "batching={batch_size: 16, labels: all}", "heads.classifier.row_dropout=0", "training.epochs=2",
    ]  # fmt: skip
    for kind in ("row_adagrad", "lazy_adamw", "sgd", "adamw"):
        more = ["freeze=[encoder]"] if kind in ("sgd", "adamw") else []  # which want dense gradients
        table = f"training.tables={{kind: {kind}, lr: 0.02}}"
        recipe = load_recipe("inceptionxml-cpu", [*changes, table, *more])

        def make(own, recipe=recipe):
            torch.manual_seed(0)
            encoders = build_encoders(recipe, data)
            network = build_network(recipe, encoders, LABELS, own).double()
            texts = Texts.of(data, encoders)
            return Loop(recipe, network, data.train, texts.train, texts.labels)

        def saved(loop, own, place):
            tensors, rows, scalars = collect_state(loop.network, loop.optimisers)
            save_checkpoint(place, loop.step, tensors, {"optimisers": scalars}, rows=rows, ranks=own)

        def back(own, place):
            loop, actual = make(own), load_checkpoint(place, ranks=own)
            load_weights(loop.network, actual)
            restore_optimisers(loop.network, loop.optimisers, actual)
            return loop

        loop = make(ranks)
        list(loop.run_epoch())
        saved(loop, ranks, folder / kind)
        if ranks.first:
            alone = make(ALONE)
            list(alone.run_epoch())
            again = back(ALONE, folder / kind)
            actual, expected = (collect_state(each.network, each.optimisers)[0] for each in (again, alone))
            assert actual.keys() == expected.keys()
            for name, value in expected.items():
                torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-10, msg=f"{kind} {name}")
            saved(again, ALONE, folder / f"{kind} alone")
        ranks.broadcast(lambda: None)
        again = back(ranks, folder / f"{kind} alone")
        both = (collect_state(each.network, each.optimisers)[:2] for each in (again, loop))
        for left, right in zip(*both, strict=True):
            assert left.keys() == right.keys()
            assert all(torch.equal(left[name], right[name]) for name in left), kind


class _NoRoom:
    """Stands for a disk that is full."""

    shape, dtype, itemsize = (1,), "float32", 4

    def __array__(self, *args, **kwargs):
        raise OSError(28, "No space left on device")


def words(ranks, folder):
    """What the first rank makes is told to all, its mistakes too; who differs is found."""
    assert ranks.broadcast(lambda: [1, "two"]) == [1, "two"]
    assert ranks.on_rank0(lambda: 5) == (5 if ranks.first else None)
    assert ranks.rank0_first(lambda: 6) == 6
    with pytest.raises(DataError, match="not so"):
        ranks.broadcast(lambda: _wrong())
    ranks.same("seed", b"1")
    with pytest.raises(DataError, match="rank 2 of 3 does not have the same seed"):
        ranks.same("seed", b"1" if ranks.rank < 2 else b"2")
    assert ranks.max_int(ranks.rank, ranks.rank == 1, -5) == [2, 1, -5]


def _wrong():
    raise DataError("not so")


PIECES = [gathers, gradients, clipping, searches, clusters, starts, checkpoints, states, words]


def test_pieces(run_ranks, tmp_path):
    run_ranks(WORLD, __file__, tmp_path)


def test_alone():
    assert ALONE.share(7) == range(7)
    assert ALONE.sizes(7) == [7]
    part = torch.ones(2)
    assert ALONE.gather(part, [2]) is part
    assert ALONE.broadcast(lambda: "x") == ALONE.on_rank0(lambda: "x") == ALONE.rank0_first(lambda: "x") == "x"
    assert ALONE.device("cuda:7") == "cuda:7"
    assert ALONE.command == ["megalabel"]


if __name__ == "__main__":
    with join(timeout=120) as ranks:
        for piece in PIECES:
            try:
                piece(ranks, Path(sys.argv[1]))
            except Exception as error:
                raise RuntimeError(f"{piece.__name__} on rank {ranks.rank}") from error
