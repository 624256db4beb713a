"""Tokenising titles: the token store against a transformers tokenizer, in one run.

Run: python benchmarks/tokens.py [--data D]
Prints texts per second, writes results/tokens.json, and ends with exit code 1 below a ratio of 2.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from _results import write_result
from megalabel import load
from megalabel.data.tokens import store_tokens, tokenise
from megalabel.encoders import TransformerEncoder

WANTED_RATIO = 2.0


def seconds(work) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    """Time both ways on the same texts, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="pydocs", help="a built-in name, a folder or a file")
    parser.add_argument("--texts", type=int, default=60_000, help="distinct texts at most")
    options = parser.parse_args()
    data = load(options.data)
    texts = list(dict.fromkeys([*data.train.texts, *data.test.texts, *data.labels.texts]))[: options.texts]
    encoder = TransformerEncoder("minilm")
    fast = encoder._fast_tokenizer
    fast(texts[:100], add_special_tokens=False)  # warm up
    times: dict[str, list[float]] = {"store": [], "transformers": []}
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            times["store"].append(seconds(lambda: store_tokens(texts, encoder.tokenizer, folder=Path(folder))))
        times["transformers"].append(seconds(lambda: fast(texts, add_special_tokens=False)))
    ours = tokenise(texts[:2_000], encoder.tokenizer)
    theirs = fast(texts[:2_000], add_special_tokens=False)["input_ids"]
    same = all(np.array_equal(ours[i], row) for i, row in enumerate(theirs))
    speed = {name: len(texts) / min(values) for name, values in times.items()}
    ratio = speed["store"] / speed["transformers"]
    with tempfile.TemporaryDirectory() as folder:
        store_tokens(texts, encoder.tokenizer, folder=Path(folder))
        again = seconds(lambda: store_tokens(texts, encoder.tokenizer, folder=Path(folder)))
    print(f"{len(texts):,} texts of {data.name}, {len(ours.ids) / len(ours):.1f} tokens each, ids as {ours.ids.dtype}")
    print(
        f"token store {speed['store']:,.0f}/s, transformers {speed['transformers']:,.0f}/s: {ratio:.1f}x, same: {same}"
    )
    print(f"second call, from the cache: {again:.3f} s")
    result = {"data": data.name, "texts": len(texts), "texts_per_second": speed, "ratio": ratio, "same": same}
    write_result("tokens", {**result, "cached_seconds": again}, "tokenizers", "transformers")
    return 0 if same and ratio >= WANTED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
