"""Predict a file with several processes, in its order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.model.predict_stream import BLOCK, predict_stream
from megalabel.model.prediction import Prediction
from megalabel.model.write_found import Found

if TYPE_CHECKING:
    from megalabel.model.model import Model
    from megalabel.ranks import Ranks

__all__ = ["predict_ranks"]


def predict_ranks(
    model: Model, texts: Iterable[tuple[str, str]], ranks: Ranks, k: int = 5, **options: Any
) -> Iterator[list[Found]]:
    """Yield what :func:`~megalabel.model.predict_stream.predict_stream` does on the first rank, nothing on the others.

    Every rank has the whole model and reads the same texts; each predicts its own of as many blocks as
    there are ranks, and the first gathers them. All must take the results to the end.
    """
    source = iter(texts)
    while some := list(islice(source, BLOCK * ranks.world)):
        own = some[BLOCK * ranks.rank : BLOCK * (ranks.rank + 1)]
        found = [row for rows in predict_stream(model, own, k, **options) for row in rows]
        packed = np.frombuffer(json.dumps([asdict(row) for row in found]).encode(), dtype=np.uint8).copy()
        sizes = ranks.gather(torch.tensor([len(packed)]), [1] * ranks.world).tolist()
        whole = ranks.gather(torch.from_numpy(packed), sizes).numpy()
        if ranks.first:
            for part in np.split(whole, np.cumsum(sizes)[:-1]):
                yield [_row(row) for row in json.loads(part.tobytes())]


def _row(document: dict[str, Any]) -> Found:
    labels = [Prediction(**label) for label in document.pop("labels")]
    return Found(**document, labels=labels)
