from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn.functional import normalize

from megalabel.heads import NeighboursSettings, neighbours
from megalabel.heads.dense import Points
from megalabel.heads.neighbours import sample_neighbours

TARGETS = sparse.csr_matrix(
    np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [1, 0, 1, 1, 0], [0, 1, 0, 0, 0]], dtype=np.float32)
)
GENERATOR = torch.Generator().manual_seed(0)
TEXTS, QUERIES = torch.randn(5, 4, generator=GENERATOR), torch.randn(4, 4, generator=GENERATOR)


def build(**settings):
    settings = {"points": 2, "point_labels": 2, "normalise": False, "loss": "bce", **settings}
    head = NeighboursSettings(**settings).build(size=5, encoder_dim=4)
    head.attach(TARGETS, seed=7)
    with torch.no_grad():
        head.point_matrix += torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
        head.label_matrix += torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
    return head


def slow(head, label, batch=()):
    """Follow the definition with loops."""
    unit, queries = normalize(TEXTS, dim=1), normalize(QUERIES, dim=1)
    hidden = []
    for point in head._points[label].tolist():
        if point < 0 or point in batch:
            continue
        further = [unit[other] for other in head._labels[point].tolist() if other >= 0]
        pair = torch.cat([queries[point], torch.stack(further).mean(0)])
        hidden.append(normalize(head.point_matrix @ pair, dim=0))
    mean = torch.stack(hidden).mean(0) if hidden else torch.zeros(4)
    return head.label_matrix @ torch.cat([unit[label], mean])


@pytest.mark.parametrize("batch", [[], [1], [0, 2, 3]])
def test_a_label_is_its_text_and_the_mean_of_its_points(batch):
    head = build()
    pool = torch.tensor([0, 2, 4])
    ids = head.points(pool, torch.tensor(batch, dtype=torch.int64))
    assert not set(ids.tolist()) & set(batch)
    vectors, _ = head.labels(pool, TEXTS[head.support(pool)], points=Points(ids, QUERIES[ids]))
    expected = torch.stack([slow(head, label, batch) for label in pool.tolist()])
    torch.testing.assert_close(vectors, expected)


@pytest.mark.parametrize("block", [2, 5])
def test_stored_means_give_the_same_vectors(monkeypatch, block):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    head = build()
    head.after_epoch(SimpleNamespace(points=QUERIES.__getitem__, labels=TEXTS.__getitem__))
    vectors, _ = head.labels(None, TEXTS, search=True)
    torch.testing.assert_close(vectors, torch.stack([slow(head, label) for label in range(5)]))
    assert not head.means[4].any()  # a label without points


def test_it_begins_as_a_dual_encoder():
    head = NeighboursSettings(loss="bce").build(size=5, encoder_dim=4)
    head.attach(TARGETS, seed=7)
    pool = torch.tensor([1, 3])
    ids = head.points(pool, torch.tensor([0]))
    vectors, _ = head.labels(pool, TEXTS[head.support(pool)], points=Points(ids, QUERIES[ids]))
    torch.testing.assert_close(vectors, normalize(TEXTS[pool], dim=1))
    vectors.square().mul(torch.randn(2, 4)).sum().backward()
    assert head.label_matrix.grad[:, 4:].any()  # the neighbours can be learnt from the first step on


def test_gradients_reach_texts_points_and_matrices():
    head = build().double()
    texts, queries = (part.double().requires_grad_() for part in (TEXTS, QUERIES))
    pool = torch.tensor([0, 1, 2])
    ids, support = head.points(pool, pool[:0]), head.support(pool)

    def value(texts, queries):
        return head.labels(pool, texts[support], points=Points(ids, queries[ids]))[0]

    assert torch.autograd.gradcheck(value, (texts, queries))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_neighbours_are_drawn_from_the_row(count):
    drawn = sample_neighbours(TARGETS, count, seed=3)
    assert drawn.shape == (4, count)
    for row, (start, stop) in enumerate(zip(TARGETS.indptr[:-1], TARGETS.indptr[1:], strict=True)):
        real = drawn[row][drawn[row] >= 0]
        assert len(set(real.tolist())) == len(real) == min(count, stop - start)
        assert set(real.tolist()) <= set(TARGETS.indices[start:stop].tolist())
    assert np.array_equal(drawn, sample_neighbours(TARGETS, count, seed=3))


class New:
    added, texts, ids = True, ["a"], np.array([5])

    def encoded(self, head):
        return torch.tensor([[3.0, 0.0, 0.0, 4.0]])


def test_a_new_label_has_no_neighbours_and_a_renamed_one_keeps_its_own():
    head = build()
    head.means.normal_()
    vectors, parts = head.new_vectors(New())
    text = torch.tensor([0.6, 0.0, 0.0, 0.8])
    torch.testing.assert_close(vectors[0], head.label_matrix[:, :4] @ text)
    assert not parts["means"].any()
    renamed = New()
    renamed.added, renamed.ids = False, np.array([2])
    vectors, parts = head.new_vectors(renamed)
    torch.testing.assert_close(vectors[0], head.label_matrix @ torch.cat([text, head.means[2]]))
    assert torch.equal(parts["means"], head.means[[2]])


def test_it_cannot_score_without_texts():
    with pytest.raises(TypeError, match="needs encoded label texts"):
        build().labels(None, None)
