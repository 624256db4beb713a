"""Export the dual tower of a trained model to ONNX, and measure the exported graphs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from megalabel.documents import read_json
from megalabel.errors import DataError, MissingExtraError, SettingError
from megalabel.files import check_target, need, writing, writing_folder
from megalabel.index import ExactIndex
from megalabel.integrations._export import DualTower, quiet
from megalabel.metrics.measure import measure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from megalabel.data.dataset import Dataset
    from megalabel.heads import DenseHead
    from megalabel.model import Model

__all__ = ["export_onnx", "measure_onnx"]

MODEL, INT8 = "model.onnx", "model.int8.onnx"
_INLINE = 1 << 30  # bytes of weights inside the file; the format allows 2 GiB
_BATCH = 64  # texts per batch
_BEST = 5


def export_onnx(
    model: Model, folder: str | PathLike[str], *, head: str | None = None, int8: bool = False, overwrite: bool = False
) -> DualTower:
    """Write model.onnx and tokenizer.json for ONNX Runtime and tokenizers; return the exported tower.

    The graph takes ``input_ids`` and ``attention_mask`` [n, t] (int64, any n and t) and has
    two outputs [n, d] in float32: ``query`` is ``model.encode(texts, heads=head)``, ``label`` the
    label vectors; ask for the one you need. Encoder, pooling, projections and normalisation are
    part of the graph. tokenizer.json adds special tokens, pads, and truncates to the length of
    queries; for labels, call ``enable_truncation`` with the ``label_length`` of export.json if it
    differs.

    Args:
        model: a trained model with a transformer encoder.
        folder: where to write.
        head: a head of kind text; by default the first.
        int8: also write model.int8.onnx, with 8-bit weights and dynamically quantised activations;
            smaller and faster on most CPUs, slightly less accurate (see :func:`measure_onnx`).
        overwrite: replace a folder that is not empty.
    """
    for package in ("onnx", "onnxscript", *(("onnxruntime",) if int8 else ())):
        if find_spec(package) is None:
            raise MissingExtraError(package, extra="onnx", what="export to ONNX")
    tower = DualTower.of(model, head)
    _ = tower.transformer  # a bag is refused before anything is written
    check_target(folder, overwrite=overwrite)
    with writing_folder(folder, overwrite=overwrite) as target:
        _write_graph(tower, target / MODEL)
        if int8:
            _quantise(target)
        _write_tokenizer(tower, target)
        tower.write_about(target, model, to="onnx")
    return tower


class _Graph(nn.Module):
    """Token ids and mask in, query and label vectors out."""

    def __init__(self, tower: DualTower, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer: nn.Module = transformer
        self.head: DenseHead = tower.head
        encoder = tower.transformer
        self.project = encoder.project
        self.pool, self.states, self.layers = encoder._pool, encoder._states, encoder._plain_layers

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        states = self.states(self.transformer, self.layers, **inputs)
        vectors = torch.cat([self.pool(hidden, attention_mask) for _, hidden in states], dim=1)
        vectors = vectors if self.project is None else linear(vectors, self.project)
        return self.head.query(vectors, search=True), self.head.of_texts(vectors)


def _write_graph(tower: DualTower, path: Path) -> None:
    """Trace the tower; its transformer is loaded again, with eager attention."""
    from transformers import AutoModel

    encoder = tower.transformer
    with TemporaryDirectory() as plain, quiet():
        encoder.save(plain)
        transformer = AutoModel.from_pretrained(
            plain, attn_implementation="eager", use_safetensors=True, local_files_only=True
        )
        mode, device = tower.head.training, next(encoder.parameters()).device
        graph = _Graph(tower, transformer.float().to(device)).eval()
        ids = torch.full((2, 3), encoder._pad, dtype=torch.int64, device=device)
        axes = {0: "batch", 1: "length"}
        try:
            torch.onnx.export(
                graph,
                (ids, torch.ones_like(ids)),
                str(path),
                input_names=["input_ids", "attention_mask"],
                output_names=["query", "label"],
                dynamic_shapes={"input_ids": axes, "attention_mask": axes},
                external_data=sum(part.numel() * 4 for part in graph.parameters()) > _INLINE,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # anything in an architecture that ONNX does not support
            kind = type(transformer).__name__
            raise SettingError(f"{kind} cannot be written as ONNX ({str(error).strip().splitlines()[0]})") from error
        finally:
            tower.head.train(mode)


def _quantise(folder: Path) -> None:
    """Write the graph with 8-bit weights beside the full one."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(folder / MODEL)
    graph.graph.ClearField("value_info")  # shapes from before weights were folded; the quantiser infers them again
    with quiet():
        quantize_dynamic(graph, folder / INT8, weight_type=QuantType.QInt8, per_channel=True)


def _write_tokenizer(tower: DualTower, folder: Path) -> None:
    """Write the tokenizer, set to truncate and pad."""
    encoder = tower.transformer
    tokenizer = type(encoder.tokenizer).from_str(encoder.tokenizer.to_str())
    tokenizer.enable_truncation(tower.query_length or encoder.max_length)
    pad = tokenizer.id_to_token(encoder._pad)
    tokenizer.enable_padding(pad_id=encoder._pad, pad_token=pad)
    with writing(folder / "tokenizer.json") as out:
        out.write(tokenizer.to_str().encode())


def measure_onnx(folder: str | PathLike[str], data: Dataset, split: str = "test") -> dict[str, dict[str, float]]:
    """Return P@1 and P@5 in percent of each graph that ``export_onnx`` wrote, by its file name.

    ONNX Runtime encodes the texts and labels of the data set; the search is exact, without filter pairs.
    """
    if find_spec("onnxruntime") is None:
        raise MissingExtraError("onnxruntime", extra="onnx", what="running ONNX")
    path = Path(folder)
    about = read_json(need(path, "export.json"))
    rows = data.split(split)
    metrics = {}
    for name in (MODEL, INT8):
        if not (path / name).is_file():
            continue
        session = _Session(path / name)
        labels = session.encode(data.labels.texts, "label", about["label_length"])
        queries = session.encode(rows.texts, "query", about["query_length"])
        best = ExactIndex(labels).search(queries, min(_BEST, len(data.labels)), exclude=rows.excluded())
        report = measure(data, best.ids, split)
        metrics[name] = {key: report.metrics[key] for key in ("P@1", "P@5")}
    if not metrics:
        raise DataError("no exported model in this folder", path=folder, remedy="megalabel export RUN --to onnx")
    return metrics


class _Session:
    """A graph and its tokenizer."""

    def __init__(self, path: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(path.parent / "tokenizer.json"))

    def encode(self, texts: Sequence[str], output: str, length: int) -> torch.Tensor:
        """Return the vectors [n, d] of texts; texts of similar length are encoded together."""
        self.tokenizer.enable_truncation(length)
        order = np.argsort([len(text) for text in texts], kind="stable")
        parts = []
        for start in range(0, len(order), _BATCH):
            tokens = self.tokenizer.encode_batch([texts[row] for row in order[start : start + _BATCH]])
            ids, mask = (np.array([getattr(row, part) for row in tokens]) for part in ("ids", "attention_mask"))
            parts.append(self.session.run([output], {"input_ids": ids, "attention_mask": mask})[0])
        return torch.from_numpy(np.concatenate(parts)[np.argsort(order)])
