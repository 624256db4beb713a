"""Prediction through coarser heads, against a slow search over all paths."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from megalabel.heads.dense.children import Children
from megalabel.heads.free import FreeSettings
from megalabel.network.cascade import Cascade, ChangedRows, cascade_chain
from megalabel.network.network import Network
from megalabel.network.spaces import LabelSpace
from megalabel.network.vectors import LabelSide, space_side
from megalabel.types import LABELS

LABEL_COUNT, DIM = 30, 5


class Plain(nn.Module):
    dim, kind = DIM, "plain"


def members(group_of, size):
    ones = np.ones(len(group_of), dtype=np.float32)
    return sparse.csr_matrix((ones, (group_of, np.arange(len(group_of)))), shape=(size, len(group_of)))


@pytest.fixture
def network():
    """Three levels: 4 coarse groups, 10 fine ones within them, 30 labels; the middle head has no bias."""
    torch.manual_seed(0)
    fine_of = np.random.default_rng(0).permutation(np.arange(LABEL_COUNT) % 10)
    spaces = {
        LABELS: LabelSpace(LABELS, LABEL_COUNT),
        "coarse": LabelSpace("coarse", 4, members(fine_of % 4, 4)),
        "fine": LabelSpace("fine", 10, members(fine_of, 10)),
    }
    options = {"loss": "bce", "normalise": False}
    heads = {
        "labels": FreeSettings(candidates={"from": "second", "top": 3}, bias=True, **options),
        "first": FreeSettings(space="coarse", bias=True, temperature={"value": 0.5}, **options),
        "second": FreeSettings(
            space="fine", candidates={"from": "first", "top": 2}, temperature={"value": 0.25}, **options
        ),
    }
    network = Network(heads, {"encoder": Plain()}, spaces)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=1.0)
    return network.eval()


def make(network, beam, weights=None):
    return Cascade.of(network, space_side(network, None), dict.fromkeys(("first", "second"), beam), weights or {})


def queries(network, vectors):
    return {
        name: vectors / network.head(name).temperature() if network.head(name).bias is not None else vectors
        for name in network.heads
    }


def slow_parts(network, vectors, weights):
    """Return the weighted log p of each level for every label [Q, L], by head."""
    parts = {}
    for name in ("first", "second", "labels"):
        head, space = network.head(name), network.space(name)
        logits = vectors @ head.table.T / head.temperature() + (0 if head.bias is None else head.bias)
        logs = torch.log(1 / (1 + torch.exp(-logits.double()))).detach().numpy() * weights.get(name, 1.0)
        parts[name] = logs if space.members is None else logs[:, space.group_of]
    return parts


@pytest.fixture
def vectors():
    return torch.randn(7, DIM, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("weights", [{}, {"first": 0.5, "labels": 2.0}])
def test_a_full_beam_equals_scoring_every_label(network, vectors, weights):
    expected = sum(slow_parts(network, vectors, weights).values())
    best = make(network, 10, weights).answers(queries(network, vectors)).best(LABEL_COUNT, None)
    assert np.array_equal(best.ids, np.argsort(-expected, axis=1, kind="stable"))
    np.testing.assert_allclose(best.scores, np.exp(-np.sort(-expected, axis=1)), rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("beam", [1, 2, 3])
def test_a_narrow_beam_keeps_the_best_groups_of_every_level(network, vectors, beam):
    parts = slow_parts(network, vectors, {})
    first, second = network.space("first").group_of, network.space("second").group_of
    best = make(network, beam).answers(queries(network, vectors)).best(LABEL_COUNT, None)
    for row in range(len(vectors)):
        coarse = {first[label]: parts["first"][row, label] for label in range(LABEL_COUNT)}
        kept = sorted(coarse, key=coarse.get, reverse=True)[:beam]
        fine = {
            second[label]: parts["first"][row, label] + parts["second"][row, label]
            for label in range(LABEL_COUNT)
            if first[label] in kept
        }
        kept = sorted(fine, key=fine.get, reverse=True)[:beam]
        reached = [label for label in range(LABEL_COUNT) if second[label] in kept]
        total = sum(part[row] for part in parts.values())
        expected = sorted(reached, key=lambda label: -total[label])
        found = best.ids[row][best.ids[row] >= 0]
        assert found.tolist() == expected
        assert np.all(best.scores[row][len(expected) :] == -np.inf)


def test_parts_of_given_labels_sum_to_their_score(network, vectors):
    answers = make(network, 1, {"second": 0.5}).answers(queries(network, vectors))
    candidates = np.random.default_rng(2).integers(0, LABEL_COUNT, (len(vectors), 6))
    slow = slow_parts(network, vectors, {"second": 0.5})
    parts = answers.parts(candidates)
    for name, part in parts.items():
        np.testing.assert_allclose(part, np.take_along_axis(slow[name], candidates, axis=1), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(answers.score(candidates), np.exp(sum(parts.values())), rtol=1e-5, atol=1e-30)


def test_excluded_pairs_and_removed_labels_leave_before_the_cut(network, vectors):
    cascade = make(network, 10)
    whole = cascade.answers(queries(network, vectors)).best(LABEL_COUNT, None).ids
    exclude = sparse.csr_matrix((np.ones(7), (np.arange(7), whole[:, 0])), shape=(7, LABEL_COUNT))
    gone = np.unique(whole[:, 1])
    found = cascade.having({}, {}, gone).answers(queries(network, vectors)).best(3, exclude).ids
    for row in range(len(vectors)):
        expected = [label for label in whole[row] if label != whole[row, 0] and label not in gone]
        assert found[row].tolist() == expected[:3]


def test_added_and_renamed_labels(network, vectors):
    """A changed row takes the place of the trained one; an added label is found in its group."""
    ids = np.array([4, LABEL_COUNT])
    side = LabelSide(torch.full((2, DIM), 0.5), torch.tensor([0.25, 8.0]))
    groups = {name: np.array([network.space(name).group_of[4]]) for name in ("first", "second")}
    spaces = {name: network.space(name).grown(groups[name]) for name in groups}
    spaces["labels"] = LabelSpace(LABELS, LABEL_COUNT + 1)
    changed = {name: ChangedRows(ids, side) for name in network.heads}
    answers = make(network, 10).having(spaces, changed, np.empty(0, dtype=np.int64)).answers(queries(network, vectors))
    parts = answers.parts(np.tile([4, LABEL_COUNT], (7, 1)))
    logits = vectors.sum(dim=1, keepdim=True) * 0.5 / network.head("labels").temperature() + side.bias
    expected = torch.nn.functional.logsigmoid(logits).detach().numpy()
    np.testing.assert_allclose(parts["labels"], expected, rtol=1e-4)
    assert np.array_equal(parts["second"][:, 0], parts["second"][:, 1])
    best = answers.best(LABEL_COUNT + 1, None)
    assert all(sorted(row) == list(range(LABEL_COUNT + 1)) for row in best.ids.tolist())
    np.testing.assert_allclose(best.scores, answers.score(best.ids), rtol=1e-4, atol=1e-30)


def test_labels_below_several_groups_take_the_best_way():
    children = Children.of(sparse.csr_matrix(np.array([[1, 1, 0], [0, 1, 1]])))
    below = children.below(np.array([[0, 1], [1, -1]]), np.array([[-2.0, -1.0], [-3.0, -np.inf]]))
    assert below.items.tolist() == [[0, 1, 2], [1, 2, -1]]
    assert below.totals.tolist() == [[-2.0, -1.0, -1.0], [-3.0, -3.0, -np.inf]]
    assert children.above(1)[0].tolist() == [0, 1]


def test_labels_may_propose_labels(vectors):
    """A first head over the labels keeps its best for a second one."""
    options = {"loss": "bce", "normalise": False}
    heads = {
        "rough": FreeSettings(**options),
        "exact": FreeSettings(candidates={"from": "rough", "top": 4}, **options),
    }
    network = Network(heads, {"encoder": Plain()}, 12).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    cascade = Cascade.of(network, space_side(network, None), {"rough": 4}, {})
    given = queries(network, vectors)
    best = cascade.answers(given).best(12, None)
    rough = torch.topk(vectors @ network.head("rough").table.T, 4).indices
    assert [sorted(row[row >= 0]) for row in best.ids] == [sorted(row) for row in rough.tolist()]
    np.testing.assert_allclose(best.scores[:, :4], cascade.answers(given).score(best.ids[:, :4]), rtol=1e-5)


def test_the_chain_follows_candidates_whatever_the_order():
    meta, free = FreeSettings(space="a", loss="bce"), {"kind": "free", "loss": "bce"}
    middle = FreeSettings(space="b", candidates={"from": "x", "top": 2}, loss="bce")
    last = FreeSettings(candidates={"from": "y", "top": 2}, loss="bce")
    assert cascade_chain({"z": last, "y": middle, "x": meta}) == ["x", "y", "z"]
    assert cascade_chain({"x": FreeSettings(**free)}) == []
    assert cascade_chain({"z": last, "w": last, "y": middle, "x": meta}) == []


def test_probabilities_of_the_first_level_are_propagated_over_its_graph(network, vectors):
    graph = sparse.random(4, 4, density=0.7, random_state=np.random.default_rng(3), format="csr", dtype=np.float32)
    graph = sparse.csr_matrix(graph + 0.1 * sparse.identity(4, dtype=np.float32))
    plain = slow_parts(network, vectors, {})
    network.spaces["coarse"] = replace(network.spaces["coarse"], graph=graph)
    found = make(network, 30).answers(queries(network, vectors)).best(LABEL_COUNT, None)
    head, dense = network.head("first"), graph.toarray()
    logits = (vectors @ head.table.T / head.temperature() + head.bias).detach().numpy().astype(np.float64)
    spread = np.zeros_like(logits)
    for row in range(len(logits)):
        for group in range(4):
            for other in range(4):
                spread[row, other] += dense[group, other] / (1 + np.exp(-logits[row, group]))
    first = np.log(np.minimum(spread, 1))[:, network.spaces["coarse"].group_of]
    totals = np.exp(first + plain["second"] + plain["labels"])
    assert np.array_equal(found.ids, np.argsort(-totals, axis=1, kind="stable"))
    np.testing.assert_allclose(found.scores, -np.sort(-totals, axis=1), rtol=1e-4, atol=1e-30)
