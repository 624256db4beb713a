"""Recipes trained by two and four processes give the losses, gradients and weights of one process."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import megalabel as ml
from megalabel.network.init import init_heads
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_encoders, build_network
from megalabel.training.distributed import join
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts

DATA = "synthetic:points=70,labels=23,seed=4"  # 23 labels and batches of 17: no share is like the next
BAG = "encoder={kind: bag, source: null, options: {dim: 12, words: 128, bigrams: 64, characters: 0}}"
SMALL = [BAG, "batching.batch_size=17", "training.epochs=2", "training.chunk_size=5"]
NO_CHANCE = ["dropout=0", "row_dropout=0"]
ANEW = "batching.refresh={start: 1, every: 1}"
MINED = [ANEW, "batching.negatives={mined: 2, top: 6}"]
DUAL = [f"heads.dual.{each}" for each in ("dropout=0", "dim=10")]
RUNS = {
    "dexml": ["dexml", *SMALL, "training.tables={kind: row_adagrad, lr: 0.05}"],
    "dexml-hnm": ["dexml-hnm", *SMALL, *MINED],
    "depsl": ["depsl", *SMALL, *MINED, *DUAL, "batching.cap=15"],
    "unidec": [
        "unidec", *SMALL, *MINED, *DUAL, *(f"heads.classifier.{each}" for each in [*NO_CHANCE, "dim=9"]),
    ],
    "all labels, both heads": [
        "unidec-cpu", *SMALL, "batching={batch_size: 17, labels: all, order: shuffled}",
        "heads.dual.loss={kind: soft_top_k, k: 2}", "heads.classifier.loss={kind: softmax}", "training.clip=0.1",
    ],
    "candidates of each text": [
        "astec-cpu", *SMALL, "batching.negatives={mined: 3, uniform: 2, top: 5}", ANEW,
        "heads.classifier.dropout=0", "stages=[]", "spaces={}",
    ],
    "biases, corrected pools": [
        "inceptionxml-cpu", *SMALL, *MINED, "batching.log_q=true", "heads.classifier.row_dropout=0",
    ],
    "shared vectors, hard positives": [
        "depsl", *SMALL, *MINED, "training.heads=null",
        "heads.dual={kind: shared, size: 4, private: 3, temperature: {value: 1.0}, "
        "loss: {kind: triplet, margin: 0.2, k: 5, positives: 2, weights: hinge}}",
    ],
    "centroids": [
        "depsl", *SMALL, "batching={batch_size: 17, positives: {pick: all}}", "training.heads=null",
        "heads.dual={kind: text, centroid: 0.3, loss: {kind: softmax}}",
    ],
    "frozen encoder, table from a graph": [
        "unidec-cpu", *SMALL, "freeze=[encoder]", "batching={batch_size: 17}",
        "heads={dual: {kind: text_free, unit_text: true, loss: softmax}, "
        "classifier: {kind: free, init: graph, loss: {kind: bce, reduction: sum}}}",
    ],
    "batches of labels, mined within an epoch": [
        "unidec-cpu", *SMALL,
        "batching={batch_size: 11, order: {kind: by_label, replacement: false}, negatives: {mined: 2, top: 6}}",
        "batching.refresh={start: 0, every_steps: 3}",
    ],
    "clusters that grow": [
        "unidec-cpu", *SMALL, "batching={batch_size: 17, order: {kind: clustered, size: 2, double_at: [1]}}",
        "batching.refresh={start: 0}",
    ],
}  # fmt: skip


class Watched(Loop):
    """Keeps the losses of all steps and the gradients of the first, as the optimisers get them."""

    def begin(self):
        self.losses, self.actual, self.vectors = [], {}, []
        for head in self.network.heads.values():
            head.labels = partial(self.look, head.labels)
        return self

    def look(self, plain, *args, **options):
        vectors, bias = plain(*args, **options)
        if vectors.requires_grad and not self.actual:
            self.vectors.append(vectors)
            vectors.retain_grad()
        return vectors, bias

    def _share_gradients(self):
        super()._share_gradients()
        if not self.actual:
            grads = {name: part.grad for name, part in self.network.named_parameters() if part.grad is not None}
            self.actual = {f"gradient.{name}": grad.to_dense().clone() for name, grad in grads.items()}
            if self.recipe.batching.labels == "all":  # the first and last label of every shard
                assert self.vectors
                assert all(vectors.grad[edge].any() for vectors in self.vectors for edge in (0, -1))

    def _step(self, batch, builder):
        if any(getattr(head, "centroid", 0) for head in self.recipe.dense_heads.values()):
            batch = self.with_partners(batch)
        result = super()._step(batch, builder)
        self.losses.append(result.loss)
        return result

    def with_partners(self, batch):
        """Add what batches made of labels have: a label of each query, and another point of it."""
        targets, rows = self.split.targets, batch.queries.numpy()
        anchors = [int(targets[row].indices[0]) for row in rows]
        partners = [int(targets[:, anchor].nonzero()[0][-1]) for anchor in anchors]
        return replace(batch, anchors=torch.tensor(anchors), partners=torch.tensor(partners))


def run(name, data, ranks):
    """Train, and return what there is to compare; rows of labels stand under the number of the first."""
    recipe, *changes = RUNS[name]
    recipe = load_recipe(recipe, changes)
    torch.manual_seed(recipe.seed)
    encoders = build_encoders(recipe, data)
    network = build_network(recipe, encoders, len(data.labels), ranks).double()
    texts = Texts.of(data, encoders)
    init_heads(network, data.train.targets, texts.train, texts.labels)
    loop = Watched(recipe, network, data.train, texts.train, texts.labels).begin()
    trained = {part: value for part, value in network.sharded().items() if value.requires_grad}
    before = {part: value.detach().clone() for part, value in trained.items()}
    for _ in range(recipe.training.epochs):
        for _ in loop.run_epoch():
            pass
    for part, value in trained.items():
        for edge in (0, -1):
            assert not torch.equal(value[edge], before[part][edge]), f"{name}: label {edge} of a shard was not trained"
    actual = loop.actual | {f"weight.{part}": value.detach() for part, value in network.named_parameters()}
    actual |= {"losses": torch.tensor(loop.losses, dtype=torch.float64)}
    actual |= {"clusters": torch.from_numpy(loop.refreshed.clusters), "mined": torch.from_numpy(loop.refreshed.mined)}
    own = set(network.sharded())
    first = network.shard.start
    return {f"{name}|{first if key.partition('.')[2] in own else 0}|{key}": value for key, value in actual.items()}


def all_runs(ranks):
    torch.set_num_threads(1)
    data = ml.load(DATA)
    return {key: value.contiguous() for name in RUNS for key, value in run(name, data, ranks).items()}


@pytest.fixture(scope="module")
def alone():
    with join() as ranks:
        return all_runs(ranks)


def whole(folder, world):
    """Put the rows of labels together again; what all ranks have must be the same to the last bit."""
    parts = {}
    for rank in range(world):
        for key, value in load_file(folder / f"{rank}.safetensors").items():
            name, first, what = key.split("|")
            rows = parts.setdefault((name, what), {})
            assert int(first) not in rows or torch.equal(rows[int(first)], value), f"{key} differs between ranks"
            rows[int(first)] = value
    return {
        f"{name}|0|{what}": torch.cat([rows[first] for first in sorted(rows)]) if len(rows) > 1 else rows[0]
        for (name, what), rows in parts.items()
    }


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.extra)])
def test_ranks_train_as_one_process(alone, world, run_ranks, tmp_path):
    run_ranks(world, __file__, tmp_path)
    actual = whole(tmp_path, world)
    assert actual.keys() == alone.keys()
    for key, value in alone.items():
        what = key.split("|")[2]
        if what in ("clusters", "mined"):
            assert torch.equal(actual[key], value), key
        else:
            near = 1e-8 if what.startswith("weight") else 1e-6
            torch.testing.assert_close(actual[key], value, rtol=0, atol=near, msg=lambda m, key=key: f"{key}: {m}")


if __name__ == "__main__":
    with join(timeout=120) as ranks:
        save_file(all_runs(ranks), Path(sys.argv[1]) / f"{ranks.rank}.safetensors")
