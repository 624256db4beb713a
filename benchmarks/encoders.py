"""Encoders on a CPU: speed of both kinds on the same texts, and what they know before any training.

Run: python benchmarks/encoders.py [--data D] [--texts N]
Prints and writes results/encoders.json: texts per second, the bag's step against torch's own sparse EmbeddingBag, and
precision of untrained encoders. Ends with exit code 1 if the bag's step is not the faster one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
import torch
from torch.nn.functional import embedding, embedding_bag

from _results import write_result
from megalabel import load
from megalabel.encoders import BagEncoder, TransformerEncoder, build_encoder
from megalabel.index import ExactIndex
from megalabel.metrics.measure import measure

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")


def best_seconds(work, repeats: int = 3) -> float:
    """Return the fastest of a few calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def speeds(encoder, texts, step: int) -> dict[str, float]:
    """Texts per second: features or tokens, vectors, and forward + backward of a training step."""
    tokens = encoder.tokenise(texts)
    part = tokens.take(np.arange(min(step, len(texts))))
    fresh = build_encoder(encoder.config())  # remembers no words yet

    def train() -> None:
        encoder.zero_grad()
        encoder(part).square().sum().backward()

    return {
        "tokenise": len(texts) / best_seconds(lambda: fresh.tokenise(texts), 1),
        "encode": len(part) / best_seconds(lambda: encoder.encode(part)),
        "train": len(part) / best_seconds(train),
        "tokens_per_text": len(tokens.ids) / len(tokens),
    }


def compare_step(encoder: BagEncoder, texts) -> dict[str, float]:
    """Forward, backward and coalesced gradient of the bag: ours, and torch's sparse EmbeddingBag."""
    tokens = encoder.tokenise(texts)
    ids, offsets = torch.from_numpy(tokens.ids.astype(np.int64)), torch.from_numpy(tokens.offsets)
    aim = torch.randn(len(tokens), encoder.dim)

    def ours() -> None:
        encoder.zero_grad()
        encoder(tokens).mul(aim).sum().backward()
        encoder.table.grad._values()

    def torchs() -> None:
        encoder.zero_grad()
        weights = embedding(ids, encoder.weights.unsqueeze(1), sparse=False).squeeze(1)
        options = {"mode": "sum", "sparse": True, "include_last_offset": True, "per_sample_weights": weights}
        embedding_bag(ids, encoder.table, offsets, **options).mul(aim).sum().backward()
        encoder.table.grad.coalesce()

    times = {"ours": best_seconds(ours), "torch": best_seconds(torchs)}
    return {**times, "ratio": times["torch"] / times["ours"], "texts": len(tokens), "features": len(tokens.ids)}


def untrained(data, encoder) -> dict[str, float]:
    """Measure cosine search on the test set."""
    labels, queries = (
        encoder.encode(encoder.tokenise(texts), normalise=True) for texts in (data.labels.texts, data.test.texts)
    )
    best = ExactIndex(labels).search(queries, 20, exclude=data.test.excluded())
    report = measure(data, best.ids).metrics
    return {name: report[name] for name in METRICS}


def main() -> int:
    """Measure both encoders in one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="pydocs", help="a built-in name, a folder or a file")
    parser.add_argument("--texts", type=int, default=20_000, help="texts to time at most")
    options = parser.parse_args()
    os.environ["MEGALABEL_PROGRESS"] = "0"
    data = load(options.data)
    texts = list(dict.fromkeys([*data.train.texts, *data.labels.texts]))[: options.texts]
    subwords = {"words": 0, "bigrams": 0, "characters": 0}
    encoders = {
        "minilm": TransformerEncoder("minilm", max_length=64),
        "bag": BagEncoder(),
        "bag, subwords only": BagEncoder(**subwords),
        "bag, no pretrained vectors": BagEncoder(None),
    }
    result: dict[str, object] = {"data": data.name, "threads": torch.get_num_threads()}
    quality = {}
    for name, encoder in encoders.items():
        if isinstance(encoder, BagEncoder):
            encoder.fit(encoder.tokenise([*data.train.texts, *data.labels.texts]))
        quality[name] = untrained(data, encoder)
        print(f"{name:28} untrained on {data.name}:", ", ".join(f"{k} {v:.2f}" for k, v in quality[name].items()))
    speed = {}
    for name in ("minilm", "bag"):
        speed[name] = speeds(encoders[name], texts, 256 if name == "minilm" else 4_096)
        *rates, length = speed[name].items()
        text = ", ".join(f"{what} {value:,.0f}" for what, value in rates)
        print(f"{name:28} texts/s: {text}; {length[1]:.0f} tokens or features each")
    step = compare_step(encoders["bag"], texts[:4_096])
    print(
        f"bag step of {step['texts']:,} texts: {step['ours']:.3f} s, torch {step['torch']:.3f} s: {step['ratio']:.1f}x"
    )
    result |= {"untrained": quality, "per_second": speed, "step": step}
    write_result("encoders", result, "torch", "tokenizers", "transformers")
    return 0 if step["ratio"] > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
