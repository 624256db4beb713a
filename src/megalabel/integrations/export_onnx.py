"""Hand the dual tower of a trained model to ONNX Runtime."""

from __future__ import annotations

from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from megalabel.errors import MissingExtraError, SettingError
from megalabel.files import check_target, writing, writing_folder
from megalabel.integrations._dual_tower import DualTower
from megalabel.integrations._quiet import quiet

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from megalabel.model import Model

__all__ = ["INT8", "MODEL", "export_onnx"]

MODEL, INT8 = "model.onnx", "model.int8.onnx"
_INLINE = 1 << 30  # bytes of weights that go into the file itself; its format ends at 2 GiB


def export_onnx(
    model: Model, folder: str | PathLike[str], *, head: str | None = None, int8: bool = False, overwrite: bool = False
) -> DualTower:
    """Write model.onnx and tokenizer.json, which ONNX Runtime and tokenizers run alone; return what they hold.

    The graph takes ``input_ids`` and ``attention_mask`` [n, t] (int64, any n and t) and has
    two outputs [n, d] in float32: ``query`` is ``model.encode(texts, heads=head)``, ``label`` the
    label vectors; ask for the one you need. Encoder, pooling, projections and normalisation
    are all in it. tokenizer.json adds special tokens, pads, and cuts at the length of queries; for
    labels, call ``enable_truncation`` with the ``label_length`` of export.json where it differs.

    Args:
        model: a trained model with a transformer encoder.
        folder: where to write.
        head: a head with ``tower: text``; by default the first.
        int8: write model.int8.onnx as well, weights in 8 bits and activations quantised as they
            come; smaller and quicker on most CPUs, a little off (see ``measure_onnx``).
        overwrite: replace a folder that is not empty.
    """
    for package in ("onnx", "onnxscript", *(("onnxruntime",) if int8 else ())):
        if find_spec(package) is None:
            raise MissingExtraError(package, extra="onnx", what="export to ONNX")
    tower = DualTower.of(model, head)
    check_target(folder, overwrite=overwrite)
    with writing_folder(folder, overwrite=overwrite) as place:
        _write_graph(tower, place / MODEL)
        if int8:
            _quantise(place)
        _write_tokenizer(tower, place)
        tower.write_about(place, model, to="onnx")
    return tower


class _Graph(nn.Module):
    """Token ids and mask in, query and label vectors out."""

    def __init__(self, tower: DualTower, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer, self.head = transformer, tower.head
        self.project = tower.encoder.project
        self.pool, self.states, self.layers = tower.encoder._pool, tower.encoder._states, tower.encoder._plain_layers

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        states = self.states(self.transformer, self.layers, **inputs)
        vectors = torch.cat([self.pool(hidden, attention_mask) for _, hidden in states], dim=1)
        vectors = vectors if self.project is None else linear(vectors, self.project)
        return self.head.query(vectors, search=True), self.head.labels(None, vectors, search=True)[0]


def _write_graph(tower: DualTower, path: Path) -> None:
    """Trace the tower; its transformer is read anew, with attention as in the books."""
    from transformers import AutoModel

    with TemporaryDirectory() as plain, quiet():
        tower.encoder.save(plain)
        transformer = AutoModel.from_pretrained(
            plain, attn_implementation="eager", use_safetensors=True, local_files_only=True
        )
        mode, device = tower.head.training, next(tower.encoder.parameters()).device
        graph = _Graph(tower, transformer.float().to(device)).eval()
        ids = torch.full((2, 3), tower.encoder._pad, dtype=torch.int64, device=device)
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
        except Exception as error:  # whatever an architecture has that ONNX has not
            kind = type(transformer).__name__
            raise SettingError(f"{kind} cannot be written as ONNX ({str(error).strip().splitlines()[0]})") from error
        finally:
            tower.head.train(mode)


def _quantise(folder: Path) -> None:
    """Write the graph with 8-bit weights beside the full one."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(folder / MODEL)
    graph.graph.ClearField("value_info")  # shapes from before weights were folded; the quantiser infers them anew
    with quiet():
        quantize_dynamic(graph, folder / INT8, weight_type=QuantType.QInt8, per_channel=True)


def _write_tokenizer(tower: DualTower, folder: Path) -> None:
    """Write the tokenizer, set to cut and pad."""
    encoder = tower.encoder
    tokenizer = type(encoder.tokenizer).from_str(encoder.tokenizer.to_str())
    tokenizer.enable_truncation(tower.query_length)
    pad = tokenizer.id_to_token(encoder._pad)
    tokenizer.enable_padding(pad_id=encoder._pad, pad_token=pad)
    with writing(folder / "tokenizer.json") as out:
        out.write(tokenizer.to_str().encode())
