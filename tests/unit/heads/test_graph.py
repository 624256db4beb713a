import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.graphs import normalise, random_walk
from megalabel.heads import GraphSettings

DENSE = np.array([[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0]], dtype=np.float32)
TARGETS = sparse.csr_matrix(DENSE)
ENCODED = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))


class Given:
    """What ``init`` and ``after_epoch`` look at, without a network."""

    shard = range(6)

    def encoded_labels(self, start, stop):
        return ENCODED[start:stop]

    def labels(self, ids):
        return 2 * ENCODED[ids]


def build(**settings):
    torch.manual_seed(1)
    settings = {"projection": "relu_residual", "normalise": False, "neighbours": 3, "loss": "bce", **settings}
    head = GraphSettings(**settings).build(size=6, encoder_dim=4)
    head.attach(TARGETS, 5)
    return head


def graph():
    return torch.from_numpy(normalise(random_walk(TARGETS, top=3, seed=5)).toarray())


def slow(head, label, texts, means):
    """The definition, for one label: three parts, each read by one layer, and shares from a layer over all three."""
    parts = [
        head.text_projection(texts[label][None])[0],
        head.graph_projection(means[label][None])[0],
        head.table[label],
    ]
    first, second = (
        layer.weight / torch.linalg.matrix_norm(layer.weight, ord=2)
        for layer in (head.attention, head.attention_weights)
    )
    hidden = torch.cat([first @ part.clamp_min(0) + head.attention.bias for part in parts])
    logits = second @ hidden + head.attention_weights.bias
    shares = logits.exp() / logits.exp().sum()
    return sum(share * part for share, part in zip(shares, parts, strict=True))


def test_a_label_is_the_attended_sum_of_text_graph_and_free_vector():
    head = build()
    head.init(Given())
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter))
    means = graph() @ ENCODED
    for pool in (None, torch.tensor([1, 4])):
        support = head.support(pool)
        encoded = ENCODED if support is None else ENCODED[support]
        vectors, _ = head.labels(pool, encoded)
        for place, label in enumerate(range(6) if pool is None else pool.tolist()):
            torch.testing.assert_close(vectors[place], slow(head, label, ENCODED, means))
    assert torch.equal(support, torch.unique(torch.cat([pool, head._neighbours[pool].flatten()])))
    assert 0 in support or 2 in support  # neighbours of 1


def test_gradients_reach_all_parts_and_the_texts_of_neighbours():
    head = build()
    head.init(Given())
    pool = torch.tensor([1])
    support = head.support(pool)
    encoded = ENCODED[support].clone().requires_grad_()
    head.labels(pool, encoded)[0].square().sum().backward()
    assert (encoded.grad.abs().sum(dim=1) > 0).all() and len(support) > 1
    assert head.table.grad.coalesce().indices().tolist() == [[1]]
    used = {name for name, parameter in head.named_parameters() if parameter.grad is not None}
    assert used == {name for name, _ in head.named_parameters() if not name.startswith("projection")}


def test_free_vectors_start_at_the_means_which_are_updated_after_an_epoch():
    head = build()
    head.init(Given())
    torch.testing.assert_close(head.means, graph() @ ENCODED)
    assert torch.equal(head.table, head.means)
    torch.testing.assert_close(head.means[5], ENCODED[5])  # no points: its own text
    found = head.labels(None, ENCODED, search=True)[0]
    torch.testing.assert_close(found, head.labels(None, ENCODED)[0])
    head.after_epoch(Given())
    torch.testing.assert_close(head.means, 2 * graph() @ ENCODED)


class New:
    added, texts, ids = True, ["a", "b"], np.array([6, 7])

    def encoded(self, head):
        return ENCODED[:2]


def test_a_new_label_is_its_own_neighbour_and_a_renamed_one_keeps_its_means():
    head = build()
    head.init(Given())
    vectors, parts = head.new_vectors(New())
    assert torch.equal(parts["means"], ENCODED[:2]) and torch.equal(parts["free"], ENCODED[:2])
    assert vectors.shape == (2, 4)
    renamed = New()
    renamed.added, renamed.ids = False, np.array([3, 5])
    kept = head.new_vectors(renamed)[1]
    assert torch.equal(kept["means"], head.means[[3, 5]]) and torch.equal(kept["free"], head.table[[3, 5]])


def test_it_cannot_score_without_texts():
    with pytest.raises(TypeError, match="needs encoded label texts"):
        build().labels(None, None)
