"""The gradient that the positives of one real label get while a dual encoder is trained, under two losses.

Run: python benchmarks/positive_gradients.py [--data DIR] [--label Afghanistan] [--epochs 10]
Writes results/positive_gradients.json: after every few steps, mean and standard deviation of the derivative of a
point's loss by its score with the label, over all train points of the label; and over the positives of one random
point, as in DEXML's Figure 3. Both losses see the same batches from the same start. docs/build.py draws it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _results import write_result
from megalabel import load
from megalabel.cli._find_label import find_label
from megalabel.data.dataset import Dataset
from megalabel.network.vectors import label_side, query_side
from megalabel.recipes.build import build_encoders, build_network
from megalabel.recipes.load_recipe import load_recipe
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts
from megalabel.types import Targets

LOSSES = ("softmax", "decoupled_softmax")
HEAD = "dual"


def main() -> int:
    """Train once with each loss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="eurlex57k-titles")
    parser.add_argument("--label", default="Afghanistan")
    parser.add_argument("--recipe", default="dexml-cpu")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--every", type=int, default=11, help="steps between measurements")
    options = parser.parse_args()
    data = load(options.data)
    label = find_label(options.label, data.labels)
    points = np.flatnonzero(data.train.targets[:, label].toarray()[:, 0] > 0)
    several = np.flatnonzero(np.diff(data.train.targets.indptr) >= 5)
    point = int(np.random.default_rng(0).choice(several))
    curves = {loss: curve(data, loss, options, points, label, point) for loss in LOSSES}
    write_result(
        "positive_gradients",
        {"data": Path(options.data).name, "recipe": options.recipe, "epochs": options.epochs, "seed": 0,
         "label": data.labels.texts[label], "points": len(points), "example": data.train.texts[point],
         "example_positives": int(data.train.targets[point].nnz), "curves": curves},
        "torch",
    )  # fmt: skip
    return 0


def curve(
    data: Dataset, loss: str, options: argparse.Namespace, points: np.ndarray, label: int, point: int
) -> list[dict[str, Any]]:
    """Return what is measured while one model is trained."""
    changes = [f"heads.{HEAD}.loss.kind={loss}", f"training.epochs={options.epochs}", "seed=0"]
    recipe = load_recipe(options.recipe, changes)
    torch.manual_seed(recipe.seed)
    encoders = build_encoders(recipe, data)
    texts = Texts.of(data, encoders)
    network = build_network(recipe, encoders, len(data.labels))
    loop = Loop(recipe, network, data.train, texts.train, texts.labels)
    rows = np.append(points, point)
    found = []

    def measure() -> None:
        network.eval()
        gradients = gradients_of(network, texts, data, rows)
        network.train()
        own = gradients[-1, data.train.targets[point].indices]
        values = gradients[:-1, label]
        found.append({"step": loop.step, **spread("label", values), **spread("example", own)})
        print(f"{loss}, step {loop.step}: {values.mean():+.4f} ± {values.std():.4f}", flush=True)

    measure()
    for _ in range(options.epochs):
        for result in loop.run_epoch():
            if result.step % options.every == 0:
                measure()
    return found


def spread(name: str, values: np.ndarray) -> dict[str, float]:
    """Return mean and standard deviation."""
    return {f"{name}_mean": float(values.mean()), f"{name}_deviation": float(values.std())}


def gradients_of(network: Any, texts: Texts, data: Dataset, rows: np.ndarray) -> np.ndarray:
    """Return [rows, L]: the derivative of the loss of each row by each of its scores."""
    head = network.head(HEAD)
    queries = query_side(network, texts.train.take(rows))[HEAD]
    labels = label_side(network, texts.labels)[HEAD].vectors
    scores = ((queries @ labels.T) / head.temperature().detach()).requires_grad_()
    targets = Targets.from_csr(data.train.targets[rows].tocsr())
    head.loss(scores, targets.dense()).backward()
    assert scores.grad is not None
    return (len(rows) * scores.grad).numpy()


if __name__ == "__main__":
    sys.exit(main())
