import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs import partition
from megalabel.heads import SharedSettings
from megalabel.heads.shared import share_vectors
from megalabel.recipes.load_recipe import make_recipe

TEXTS = torch.randn(12, 6, generator=torch.Generator().manual_seed(4))
POINTS = np.array([3, 0, 7, 1, 1, 9, 2, 0, 1, 7, 1, 1])


class Given:
    """What ``init`` looks at, without a network."""

    def __init__(self, shard=None):
        self.shard, self.seed = range(12) if shard is None else shard, 3
        dense = np.arange(POINTS.max())[:, None] < POINTS
        self.targets = sparse.csr_matrix(dense.astype(np.float32))

    def all_texts(self):
        return TEXTS


def build(shard=None, **settings):
    torch.manual_seed(1)
    settings = {"size": 3, "private": 3, "normalise": False, "loss": "bce", **settings}
    return SharedSettings(**settings).build(size=12, encoder_dim=6, shard=shard)


def test_the_most_frequent_labels_have_a_vector_of_their_own_and_the_rest_share():
    rows = share_vectors(TEXTS.numpy(), POINTS, 3, 3, seed=3)
    assert rows[5] == 0 and rows[2] == 1 and rows[9] == 2  # 9, 7 and 7 points
    others = [0, 1, 3, 4, 6, 7, 8, 10, 11]
    assert np.bincount(rows[others]).tolist() == [0, 0, 0, 3, 3, 3]  # balanced
    assert np.array_equal(rows[others] - 3, partition(TEXTS.numpy()[others], clusters=3, seed=3))


def test_a_label_is_its_text_plus_the_vector_of_its_cluster():
    head = build()
    head.init(Given())
    pool = torch.tensor([2, 3, 7, 8])
    vectors, bias = head.labels(pool, TEXTS[pool])
    rows = share_vectors(TEXTS.numpy(), POINTS, 3, 3, seed=3)
    for place, label in enumerate(pool.tolist()):
        torch.testing.assert_close(vectors[place], TEXTS[label] + head.vectors[rows[label]])
    assert bias is None and head.needs_text and head.tables() == [head.vectors]
    vectors.sum().backward()
    assert head.vectors.grad.is_sparse
    touched = head.vectors.grad.coalesce()
    assert touched.indices()[0].tolist() == sorted(set(rows[pool.numpy()].tolist()))
    torch.testing.assert_close(head.labels(None, TEXTS)[0][pool], vectors)


def test_the_vector_is_added_before_normalisation():
    head = build(normalise=True)
    head.init(Given())
    raw = TEXTS + head.vectors[head.cluster]
    torch.testing.assert_close(head.labels(None, TEXTS)[0], torch.nn.functional.normalize(raw, dim=1))


def test_every_process_has_the_clusters_of_its_own_labels():
    whole = build()
    whole.init(Given())
    parts = [build(shard) for shard in (range(5), range(5, 12))]
    for part in parts:
        part.init(Given(part.shard))
        assert torch.equal(part.vectors, whole.vectors)
    assert torch.equal(torch.cat([part.cluster for part in parts]), whole.cluster)


@pytest.mark.parametrize(("private", "size", "counts"), [(1000, 65_536, (12, 0)), (0, 5, (0, 5)), (4, 100, (4, 8))])
def test_there_are_never_more_vectors_than_labels(private, size, counts):
    head = build(private=private, size=size)
    assert head.settings.counts(12) == counts
    assert len(head.vectors) == sum(counts)
    head.init(Given())
    assert int(head.cluster.max()) < sum(counts)


class New:
    added, texts = True, ["a", "b"]
    ids = np.array([12, 13])

    def encoded(self, head):
        return torch.ones(2, 6)

    def nearest(self):
        return torch.tensor([[5, 1, 3], [5, 2, 9]]), torch.full((2, 3), 1 / 3)


def test_a_new_label_joins_the_nearest_that_shares_and_a_renamed_one_keeps_its_vector():
    head = build()
    head.init(Given())
    vectors, parts = head.new_vectors(New())
    assert parts["cluster"].tolist() == [head.cluster[1], head.cluster[5]]  # 5, 2 and 9 share none
    torch.testing.assert_close(vectors, 1 + head.vectors[parts["cluster"]])
    renamed = New()
    renamed.added, renamed.ids = False, np.array([3, 5])
    assert head.new_vectors(renamed)[1]["cluster"].tolist() == head.cluster[[3, 5]].tolist()


def test_it_cannot_score_without_texts():
    with pytest.raises(TypeError, match="needs encoded label texts"):
        build().labels(None, None)


@pytest.mark.parametrize(("kind", "group"), [("shared", "tables"), ("neighbours", "heads")])
def test_a_recipe_may_name_the_optimiser_of_what_the_head_learns(kind, group):
    """A transformer has no table, so that the head alone decides which optimisers have an effect."""
    document = {
        "name": "n", "paper": "p", "about": "a", "encoder": {"kind": "transformer"},
        "heads": {"dual": {"kind": kind, "loss": "softmax"}},
        "training": {"epochs": 1, "encoder": {"lr": 1e-5}, group: {"kind": "lazy_adamw", "lr": 1e-3}},
    }  # fmt: skip
    if group == "heads":
        document["training"][group] = {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.01}
    make_recipe(document)
    document["heads"]["dual"]["kind"] = "text"
    with pytest.raises(SettingError, match=rf"training.{group} has no effect"):
        make_recipe(document)
