"""One step for every view: groups, candidates from another head, further label texts, untied and tapped encoders."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from megalabel.batching.from_heads import HeadCandidates
from megalabel.encoders import BagEncoder
from megalabel.heads import FreeSettings, TextSettings
from megalabel.heads.text import TextHead
from megalabel.network.network import Network
from megalabel.network.spaces import LabelSpace
from megalabel.training.step import Step
from megalabel.types import Batch, Targets, Tokens, View

LABELS = 6
TEXTS = ["red", "blue hat", "shoe", "green", "long scarf", "tie"]
TARGETS = sparse.csr_matrix(np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0.5, 0]], dtype=np.float32))
MEMBERS = sparse.csr_matrix(np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=np.float32))


def bag(seed=0):
    return BagEncoder(None, dim=8, words=64, bigrams=0, characters=0, seed=seed)


def spaces():
    return {"labels": LabelSpace("labels", LABELS), "groups": LabelSpace("groups", 3, MEMBERS)}


def free(**settings):
    return FreeSettings(**{"loss": "decoupled_softmax", "bias": True, **settings})


def batch(network, space_names=("labels",)):
    views = {name: View(Targets.from_csr(network.spaces[name].targets(TARGETS))) for name in space_names}
    return Batch(torch.arange(3), views)


def gradients(network, step, batch, texts):
    network.zero_grad()
    losses = step.losses(batch, texts.take([0, 1, 2]), texts)
    step.total(losses).backward()
    named = {name: part.grad for name, part in network.named_parameters() if part.grad is not None}
    return losses, {name: (part.to_dense() if part.is_sparse else part).clone() for name, part in named.items()}


def close(first, second):
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], msg=name)


def test_all_groups_proposed_is_training_on_all_labels():
    torch.manual_seed(1)
    meta = free(space="groups", loss="bce")
    proposed = free(candidates={"from": "meta", "top": 3})
    first = Network({"meta": meta, "labels_head": proposed}, {"encoder": bag()}, spaces())
    second = Network({"meta": meta, "labels_head": free()}, {"encoder": bag()}, spaces())
    second.load_state_dict(first.state_dict())
    texts = first.tokenise(TEXTS)
    maker = HeadCandidates(TARGETS, first.spaces["groups"].relation(first.spaces["labels"]))
    mine = gradients(first, Step(first, 64, {"labels_head": maker}), batch(first, ("groups",)), texts)
    theirs = gradients(second, Step(second, 64), batch(second, ("labels", "groups")), texts)
    for name in mine[0]:
        torch.testing.assert_close(mine[0][name], theirs[0][name])
    close(mine[1], theirs[1])


def test_candidates_are_the_labels_of_the_best_groups_and_the_positives():
    torch.manual_seed(2)
    network = Network(
        {"meta": free(space="groups", loss="bce"), "fine": free(candidates={"from": "meta", "top": 1})},
        {"encoder": bag()}, spaces(),
    )  # fmt: skip
    texts = network.tokenise(TEXTS)
    seen = {}

    class Spy(HeadCandidates):
        def view(self, rows, proposed):
            seen["view"] = super().view(rows, proposed)
            seen["proposed"] = proposed
            return seen["view"]

    maker = Spy(TARGETS, MEMBERS, np.array([[0, 1], [1, 0]]))
    Step(network, 64, {"fine": maker}).losses(batch(network, ("groups",)), texts.take([0, 1, 2]), texts)
    head = network.head("meta")
    with torch.no_grad():
        encoded = network.encode_queries(texts.take([0, 1, 2]))["encoder"]
        vectors, bias = head.labels(None, None)
        best = (head.query(encoded) @ vectors.T / head.temperature() + bias).argmax(dim=1).numpy()
    assert seen["proposed"].ravel().tolist() == best.tolist()
    view = seen["view"]
    for row in range(3):
        members = set(MEMBERS[best[row]].indices.tolist()) - ({1} if row == 0 else {0} if row == 1 else set())
        positives = set(TARGETS[row].indices.tolist())
        candidates = [label for label in view.candidates[row].tolist() if label >= 0]
        assert set(candidates) == members | positives
        assert len(candidates) == len(set(candidates))
    dense = torch.zeros(3, LABELS).scatter_add_(1, view.candidates.clamp_min(0), view.targets.dense() * view.mask)
    assert np.array_equal(dense.numpy(), TARGETS.toarray())


def test_candidates_of_the_same_space_are_the_best_labels():
    maker = HeadCandidates(TARGETS)
    view = maker.view(np.array([2, 0]), np.array([[5, -1], [3, 1]]))
    assert view.candidates.tolist() == [[2, 4, 5], [0, 1, 3]]
    assert view.targets.dense().tolist() == [[1.0, 0.5, 0.0], [1.0, 0.0, 1.0]]
    assert view.pool.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_head_may_leave_the_encoder_alone_in_the_first_epochs():
    torch.manual_seed(2)
    late = {"projection": "linear", "detach_epochs": 2}
    heads = {"meta": free(), "late": free(detach_epochs=2), "texts": TextSettings(loss="softmax", **late)}
    network = Network(heads, {"encoder": bag()}, LABELS)
    texts = network.tokenise(TEXTS)
    step, grads, values = Step(network, 64), {}, {}
    for name in heads:
        for epoch in (0, 1, 2):
            network.zero_grad()
            losses = step.losses(batch(network), texts.take([0, 1, 2]), texts, epoch=epoch)
            losses[name].backward()
            grads[name, epoch] = network.encoder.table.grad is not None
            values.setdefault(name, set()).add(losses[name].item())
            own = [part.grad for part in network.heads[name].parameters()]
            assert all(part is not None for part in own)
    assert [epoch for name, epoch in grads if name == "meta" and grads[name, epoch]] == [0, 1, 2]
    for name in ("late", "texts"):
        assert [epoch for other, epoch in grads if other == name and grads[other, epoch]] == [2]
    assert all(len(each) == 1 for each in values.values())  # the loss is the same


class Neighbours(TextHead):
    """Adds the text of the next label to each label's own."""

    def support(self, pool):
        if pool is None:
            return None
        return torch.unique(torch.cat([pool, (pool + 1) % LABELS]))

    def label_rows(self, pool, projected):
        ids = torch.arange(LABELS) if pool is None else pool
        known = torch.arange(LABELS) if pool is None else self.support(pool)
        return projected[torch.searchsorted(known, ids)] + projected[torch.searchsorted(known, (ids + 1) % LABELS)]


@pytest.mark.parametrize("pool", [None, [0, 2, 3, 5]])
def test_a_head_may_need_the_texts_of_further_labels(pool):
    torch.manual_seed(3)
    network = Network(
        {"plain": TextSettings(loss="softmax"), "graph": TextSettings(loss="softmax", normalise=False)},
        {"encoder": bag()}, LABELS,
    )  # fmt: skip
    graph = Neighbours(network.head("graph").settings, size=LABELS, encoder_dim=8)
    network.heads["graph"] = graph
    texts = network.tokenise(TEXTS)
    columns = list(range(LABELS)) if pool is None else pool
    targets = Targets.from_csr(sparse.csr_matrix(TARGETS[:, columns]))
    view = View(targets, None if pool is None else torch.tensor(pool))
    losses = Step(network, 64).losses(Batch(torch.arange(3), {"labels": view}), texts.take([0, 1, 2]), texts)
    with torch.no_grad():
        encoded = network.encode_labels(texts)["encoder"]
        queries = network.encode_queries(texts.take([0, 1, 2]))["encoder"]
        rows = torch.tensor(columns)
        scores = queries @ (encoded[rows] + encoded[(rows + 1) % LABELS]).T / graph.temperature()
        torch.testing.assert_close(losses["graph"].detach(), graph.loss(scores, targets))
        plain = network.head("plain")
        scores = plain.query(queries) @ plain.labels(rows, encoded[rows])[0].T / plain.temperature()
        torch.testing.assert_close(losses["plain"].detach(), plain.loss(scores, targets))


def test_untied_encoders_each_read_their_own_side():
    torch.manual_seed(4)
    settings = TextSettings(encoder="query", label_encoder="label", loss="softmax")
    network = Network({"dual": settings}, {"query": bag(1), "label": bag(2)}, LABELS)
    texts = network.tokenise(TEXTS)
    losses, grads = gradients(network, Step(network, 64), batch(network), texts)
    head = network.head("dual")
    queries = network.encoders["query"](texts["query"].take([0, 1, 2]))
    labels = network.encoders["label"](texts["label"])
    scores = head.query(queries) @ head.labels(None, labels)[0].T / head.temperature()
    expected = head.loss(scores, Targets.from_csr(TARGETS))
    torch.testing.assert_close(losses["dual"], expected)
    network.zero_grad()
    expected.backward()
    for name in ("encoders.query.table", "encoders.label.table"):
        torch.testing.assert_close(grads[name], network.get_parameter(name).grad.to_dense())


class Layered(nn.Module):
    """An encoder of three layers, each a linear map of the last."""

    kind, dim, depth = "transformer", 4, 3

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def tokenise(self, texts):
        ids = np.array([len(text) for text in texts], dtype=np.uint16)
        return Tokens(ids, np.arange(len(ids) + 1))

    def fingerprint(self):
        return "length"

    def forward(self, tokens, max_length=None, layers=None):
        state, states = self.table(torch.from_numpy(tokens.ids.astype(np.int64))), []
        for block in self.blocks:
            state = torch.tanh(block(state))
            states.append(state)
        return state if layers is None else torch.stack([states[layer - 1] for layer in layers], dim=1)

    def encode(self, tokens, max_length=None, layers=None):
        with torch.no_grad():
            return self(tokens, max_length, layers)


def test_heads_tap_layers_of_one_pass():
    torch.manual_seed(5)
    heads = {"low": free(layer=1), "high": free(), "middle": free(layer=2)}
    network = Network(heads, {"encoder": Layered()}, LABELS)
    texts = network.tokenise(TEXTS)
    losses, _ = gradients(network, Step(network, 64), batch(network), texts)
    encoder = network.encoders["encoder"]
    for name, layer in (("low", 1), ("middle", 2), ("high", 3)):
        head = network.head(name)
        queries = encoder(texts["encoder"].take([0, 1, 2]), layers=[layer])[:, 0]
        vectors, bias = head.labels(None, None)
        scores = head.query(queries) @ vectors.T / head.temperature() + bias
        torch.testing.assert_close(losses[name], head.loss(scores, Targets.from_csr(TARGETS)))
    network.zero_grad()
    Step(network, 64).losses(batch(network), texts.take([0, 1, 2]), texts)["low"].backward()
    assert encoder.blocks[0].weight.grad is not None
    assert not encoder.blocks[1].weight.grad.any()  # in the graph of the other taps only
