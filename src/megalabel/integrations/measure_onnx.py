"""Measure exported graphs on a data set."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import torch

from megalabel.errors import DataError, MissingExtraError
from megalabel.files import need
from megalabel.index import ExactIndex
from megalabel.integrations.export_onnx import INT8, MODEL
from megalabel.metrics.measure import measure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from megalabel.data.dataset import Dataset

__all__ = ["measure_onnx"]

_BATCH = 64  # texts that go through a graph at once
_BEST = 5


def measure_onnx(folder: str | PathLike[str], data: Dataset, split: str = "test") -> dict[str, dict[str, float]]:
    """Return P@1 and P@5 in percent of each graph that ``export_onnx`` wrote, by its file name.

    Texts and labels of the data set are encoded by ONNX Runtime alone and searched exactly;
    filter pairs are left out.
    """
    if find_spec("onnxruntime") is None:
        raise MissingExtraError("onnxruntime", extra="onnx", what="running ONNX")
    place = Path(folder)
    about = orjson.loads(need(place, "export.json").read_bytes())
    rows = data.split(split)
    found = {}
    for name in (MODEL, INT8):
        if not (place / name).is_file():
            continue
        graph = _Graph(place / name)
        labels = graph.encode(data.labels.texts, "label", about["label_length"])
        queries = graph.encode(rows.texts, "query", about["query_length"])
        best = ExactIndex(labels).search(queries, min(_BEST, len(data.labels)), exclude=rows.excluded())
        metrics = measure(data, best.ids, split).metrics
        found[name] = {key: metrics[key] for key in ("P@1", "P@5")}
    if not found:
        raise DataError("there is no exported model here", path=folder, remedy="megalabel export RUN --to onnx")
    return found


class _Graph:
    """A graph and its tokenizer."""

    def __init__(self, path: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(path.parent / "tokenizer.json"))

    def encode(self, texts: Sequence[str], output: str, length: int) -> torch.Tensor:
        """Return the vectors [n, d] of texts, those of like length encoded together."""
        self.tokenizer.enable_truncation(length)
        order = np.argsort([len(text) for text in texts], kind="stable")
        parts = []
        for start in range(0, len(order), _BATCH):
            tokens = self.tokenizer.encode_batch([texts[row] for row in order[start : start + _BATCH]])
            ids, mask = (np.array([getattr(row, part) for row in tokens]) for part in ("ids", "attention_mask"))
            parts.append(self.session.run([output], {"input_ids": ids, "attention_mask": mask})[0])
        return torch.from_numpy(np.concatenate(parts)[np.argsort(order)])
