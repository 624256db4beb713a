"""Labels reached through weighted links from groups, against slow loops over all ways."""

import itertools

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import sparse

from megalabel.heads.linked import LinkedSettings, joint_scores
from megalabel.losses import TruncatedSoftmax
from megalabel.losses.truncated_softmax import TruncatedSoftmaxSettings
from megalabel.types import Targets, View

GROUPS, LABELS, LINKS, SCALE = 4, 12, 5, 3.0
RELATION = sparse.csr_matrix(
    (np.ones(LABELS, dtype=np.float32), (np.arange(LABELS) % GROUPS, np.arange(LABELS))), shape=(GROUPS, LABELS)
)
BASE = {"candidates": {"from": "meta", "top": 2}, "loss": {"kind": "bce", "reduction": "cells"}, "normalise": False}


def make(links=LINKS, **settings):
    torch.manual_seed(0)
    options = {"scale": SCALE} if links is not None else {}
    head = LinkedSettings(links=links, **options, **{**BASE, **settings}).build(
        size=LABELS, encoder_dim=3, relation=RELATION
    )
    if links is not None:
        rng = np.random.default_rng(1)
        own = [np.flatnonzero(RELATION[group].toarray().ravel()) for group in range(GROUPS)]
        more = [rng.choice(np.setdiff1d(np.arange(LABELS), part), links - len(part), replace=False) for part in own]
        head.link_labels.copy_(torch.from_numpy(np.stack([np.r_[a, b] for a, b in zip(own, more, strict=True)])))
        torch.nn.init.normal_(head.link_weights)
    return head


def slow_links(head):
    """Return a [groups, labels]: a truncated softmax over the links of each group, cell by cell."""
    weights = np.zeros((GROUPS, LABELS))
    for group in range(GROUPS):
        numbers = [float(value) for value in head.link_weights[group].detach()]
        total = sum(np.exp(number) for number in numbers)
        for label, number in zip(head.link_labels[group].tolist(), numbers, strict=True):
            weights[group, label] = min(1.0, SCALE * np.exp(number) / total)
    return weights


def slow_path(chances, weights, groups, label):
    return max((chances[group] * weights[group, label] for group in groups), default=0.0)


def test_the_weights_of_links_are_a_truncated_softmax():
    head = make()
    weights, expected = head.log_links().exp().detach().numpy(), slow_links(head)
    np.testing.assert_allclose(weights, np.take_along_axis(expected, head.link_labels.numpy(), axis=1), rtol=1e-5)
    assert (weights == 1).any() and (weights < 1).any()


def test_clusters_are_scored_by_a_truncated_softmax():
    scores = torch.randn(5, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    logs = TruncatedSoftmaxSettings(kind="truncated_softmax", scale=4.0).log_probabilities(scores)
    for row, column in itertools.product(range(5), range(9)):
        share = np.exp(scores[row, column].item()) / sum(np.exp(value) for value in scores[row].tolist())
        assert np.exp(logs[row, column].item()) == pytest.approx(min(1.0, 4.0 * share), rel=1e-9)
    targets = (torch.rand(5, 9, generator=torch.Generator().manual_seed(1)) < 0.3).double()
    rows = [-logs[row][targets[row] > 0].mean().item() if targets[row].any() else 0.0 for row in range(5)]
    assert TruncatedSoftmax(scale=4.0)(scores, targets).item() == pytest.approx(np.mean(rows))


@pytest.mark.parametrize("links", [None, LINKS])
def test_the_best_way_to_every_label(links):
    head = make(links)
    weights = RELATION.toarray() if links is None else slow_links(head)
    logs = torch.randn(6, GROUPS, generator=torch.Generator().manual_seed(2)).log_softmax(dim=1)
    truth = sparse.random(6, LABELS, density=0.2, random_state=3, format="csr")
    proposed = logs.topk(2, dim=1).indices.numpy()
    reached = head.reach(logs, proposed, truth)
    chances = logs.exp().double().numpy()
    for row in range(6):
        positives = truth[row].indices.tolist()
        forced = {int(np.argmax(chances[row] * weights[:, label])) for label in positives}
        groups = {*proposed[row].tolist(), *forced}
        expected = {label for label in range(LABELS) if any(weights[group, label] for group in groups)}
        items = reached.items[row][reached.items[row] >= 0].tolist()
        assert items == sorted(expected)
        assert set(positives) <= set(items)  # teacher forcing keeps them
        for label, total in zip(items, reached.totals[row], strict=False):
            assert np.exp(total) == pytest.approx(slow_path(chances[row], weights, groups, label), rel=1e-5)
        candidates = torch.tensor([[*items, -1]])
        part = type(reached)(*(each[row : row + 1] for each in (reached.items, reached.totals, reached.links)))
        paths = head.paths(logs[row : row + 1], part, candidates)
        np.testing.assert_allclose(paths[0, :-1].detach(), reached.totals[row][: len(items)], rtol=1e-5, atol=1e-6)
        assert paths[0, -1] == 0


def test_the_loss_is_bce_of_the_product_and_the_ways_to_positives():
    head = make(path_weight=0.3)
    scores = torch.randn(2, 3, requires_grad=True)
    paths = torch.tensor([[-0.5, -1.0, -0.1], [-2.0, -0.7, 0.0]], requires_grad=True)
    dense = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    present = torch.tensor([[True, True, True], [True, True, False]])
    candidates = torch.tensor([[0, 4, 7], [1, 2, -1]])
    targets = Targets(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.ones(2), (2, 3))
    view = View(targets, pool=torch.tensor([0, 1, 2, 4, 7]), candidates=candidates, mask=present)
    chances = (paths.exp() * torch.sigmoid(scores))[present]
    expected = torch.nn.functional.binary_cross_entropy(chances, dense[present])
    expected = expected + 0.3 * -(paths[0, 0] + paths[1, 1]) / 2
    loss = head.path_loss(scores, paths, view)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(value, (scores, paths), retain_graph=True) for value in (loss, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_reach_clusters_links_and_labels():
    head = make()
    logits = torch.randn(3, GROUPS, requires_grad=True)
    logs = (torch.log_softmax(logits, dim=1) + 0.5).clamp_max(0)
    truth = sparse.csr_matrix(np.eye(3, LABELS))
    reached = head.reach(logs, logs.detach().topk(2, dim=1).indices.numpy(), truth)
    candidates = torch.from_numpy(reached.items)
    paths = head.paths(logs, reached, candidates)
    rows = head.label_rows(torch.arange(LABELS), None)
    scores = (torch.ones(3, 1, 3) * rows[candidates.clamp_min(0)]).sum(dim=2)
    torch.sigmoid(joint_scores(scores, paths)).sum().backward()
    assert logits.grad.abs().sum() > 0 and head.link_weights.grad.abs().sum() > 0
    assert head.table.grad.to_dense().abs().sum() > 0


def test_a_label_without_links_belongs_to_its_group():
    head = make()
    grown = sparse.hstack([RELATION, sparse.csr_matrix(np.eye(GROUPS, 1, -2))]).tocsr()
    above, weights = head.reached_from(grown).above(LABELS)
    assert (above.tolist(), weights.tolist()) == ([2], [0.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": None}, "needs candidates"),
        ({"loss": "softmax"}, "needs the loss bce"),
        ({"space": "groups"}, "scores the labels themselves"),
        ({"links": None, "scale": 2.0}, "scale has no effect"),
        ({"links": 5, "scale": 5.0}, "scale must be below links"),
        ({"candidates": {"from": "meta", "top": 2, "graph": True}}, "graph has no effect"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(ValidationError, match=message):
        LinkedSettings(**{**BASE, "links": 300, **settings})
