"""One easy positive among five: which losses keep it first, over training (DEXML's Figure 2).

Run: python benchmarks/easy_positive.py [--points 1250] [--epochs 30]
Every text has five labels; the text holds a word of one of them, the easy one, and nothing that tells of the others,
which can only be memorised. Counted every few steps, over the train texts: how often the easy label is ranked first
among all labels, and how often any of the five is. A bag of words and a text head are trained over all labels, with the
same batches from the same start for each loss: on cosines at temperature 0.05, and on plain inner products. Writes
results/easy_positive.json, which docs/build.py draws.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import torch

from _results import write_result
from megalabel import load
from megalabel.data.dataset import Dataset
from megalabel.network.vectors import label_side, query_side
from megalabel.recipes.build import build_encoders, build_network
from megalabel.recipes.load_recipe import make_recipe
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts

HEAD = "dual"
POSITIVES = 5
LOSSES: dict[str, dict[str, Any]] = {
    "softmax": {"kind": "softmax"},
    "decoupled_softmax": {"kind": "decoupled_softmax"},
    "soft_top_k": {"kind": "soft_top_k", "k": POSITIVES},
}


SCORES: dict[str, dict[str, Any]] = {
    "cosine": {"temperature": {"value": 0.05}},
    "inner_product": {"temperature": {"value": 1.0}, "normalise": False},
}


def recipe(scores: dict[str, Any], loss: dict[str, Any], points: int, epochs: int) -> Any:
    """Return a dual encoder over all labels, a bag of words without characters and one text head."""
    return make_recipe({
        "name": "easy-positive",
        "paper": "Dual-Encoders for Extreme Multi-Label Classification, Gupta et al., ICLR 2024, Figure 2",
        "about": "a bag and a text head",
        "encoder": {
            "kind": "bag",
            "source": None,
            "options": {"dim": 128, "words": 1 << 15, "bigrams": 0, "characters": 0, "residual": False},
        },
        "heads": {HEAD: {"kind": "text", "loss": loss, **scores}},
        "batching": {"batch_size": min(250, points), "labels": "all", "order": "shuffled"},
        "training": {
            "epochs": epochs,
            "encoder": {"kind": "adamw", "lr": 1e-3},
            "tables": {"kind": "row_adagrad", "lr": 0.1},
            "schedule": "constant",
            "warmup": 0,
            "clip": None,
            "chunk_size": 16384,
        },
    })  # fmt: skip


def easy_labels(data: Dataset) -> np.ndarray:
    """Return [N] the label of each train point whose word its text holds."""
    words = [set(text.split()) for text in data.labels.texts]
    result = np.empty(len(data.train), dtype=np.int64)
    for row, text in enumerate(data.train.texts):
        own = data.train.targets[row].indices
        held = set(text.split())
        result[row] = next(label for label in own if words[label] & held)
    return result


def curve(data: Dataset, chosen: Any, epochs: int, every: int) -> list[dict[str, float]]:
    """Return what is counted while one model is trained."""
    torch.manual_seed(chosen.seed)
    encoders = build_encoders(chosen, data)
    texts = Texts.of(data, encoders)
    network = build_network(chosen, encoders, len(data.labels))
    loop = Loop(chosen, network, data.train, texts.train, texts.labels)
    easy, found = easy_labels(data), []
    positives = data.train.targets.toarray() > 0

    def count() -> None:
        network.eval()
        scores = query_side(network, texts.train)[HEAD] @ label_side(network, texts.labels)[HEAD].vectors.T
        network.train()
        first = scores.argmax(dim=1).numpy()
        rows = np.arange(len(first))
        found.append({
            "step": loop.step,
            "easy_first": 100 * float((first == easy).mean()),
            "positive_first": 100 * float(positives[rows, first].mean()),
        })  # fmt: skip

    with torch.no_grad():
        count()
    for _ in range(epochs):
        for result in loop.run_epoch():
            if result.step % every == 0:
                with torch.no_grad():
                    count()
    return found


def main() -> int:
    """Train once with each loss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_250, help="a fifth of them is test, and not used")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--every", type=int, default=2, help="steps between counts")
    options = parser.parse_args()
    size = f"points={options.points},labels={options.points},labels_per_point={POSITIVES}"
    name = f"synthetic:kind=easy-positive,{size},seed=0"
    data, start = load(name), time.process_time()
    curves: dict[str, dict[str, Any]] = {scores: {} for scores in SCORES}
    for scores, head in SCORES.items():
        for loss, settings in LOSSES.items():
            chosen = recipe(head, settings, len(data.train), options.epochs)
            found = curves[scores][loss] = curve(data, chosen, options.epochs, options.every)
            easy, any_one = (found[-1][name] for name in ("easy_first", "positive_first"))
            print(f"{scores}, {loss}: easy one first {easy:.1f}%, any {any_one:.1f}%", flush=True)
    about = {"data": name, "points": len(data.train), "labels": len(data.labels), "epochs": options.epochs, "seed": 0}
    spent = {"cpu_seconds": time.process_time() - start}
    write_result("easy_positive", {**about, "positives": POSITIVES, **spent, "curves": curves}, "torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
