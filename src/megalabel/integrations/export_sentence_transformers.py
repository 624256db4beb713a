"""Export the dual tower of a trained model to sentence-transformers."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

from torch import nn

from megalabel.encoders import BagEncoder, TransformerEncoder
from megalabel.encoders.spectral import over_spectral_norm
from megalabel.errors import MissingExtraError, SettingError, WriteError
from megalabel.files import check_target, writing_folder
from megalabel.heads.dense.projections import GeluResidual, ResidualIdentity
from megalabel.integrations._export import DualTower, quiet
from megalabel.integrations._static import static_embedding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from pathlib import Path

    from torch import Tensor

    from megalabel.heads import DenseHead
    from megalabel.model import Model

__all__ = ["export_sentence_transformers"]


def export_sentence_transformers(
    model: Model, folder: str | PathLike[str], *, head: str | None = None, overwrite: bool = False
) -> DualTower:
    """Write a folder that ``SentenceTransformer(folder)`` loads offline; return the tower.

    The modules of a transformer are those of sentence-transformers: Transformer, Pooling, one Dense for each
    linear layer of encoder and head, LayerNorm, Normalize. A bag without word pairs becomes a static embedding: a
    table of word vectors, which gives the same vectors for texts of known words. These folders need no megalabel. Any
    other bag is a module of this package, :class:`~megalabel.integrations.bag_module.Bag`, which must be installed
    where ``SentenceTransformer(folder, trust_remote_code=True)`` loads the folder.

    If queries and labels are encoded differently (a query matrix, another length), a Router holds both routes:
    ``encode_query`` gives the vectors of ``model.encode(texts, heads=head)``, ``encode_document`` those of labels, and
    plain ``encode`` those of queries. All are computed in float32. The folder also holds export.json, which lists what
    is not exported, the labels (labels.jsonl.gz), and label vectors with learnt corrections (labels.safetensors).

    Args:
        model: a trained model with a transformer or a bag as encoder.
        folder: where to write.
        head: a head of kind text or text_free; by default the first of kind text.
        overwrite: replace a folder that is not empty.
    """
    if find_spec("sentence_transformers") is None:
        raise MissingExtraError("sentence-transformers", extra="hf", what="export to sentence-transformers")
    if find_spec("sentence_transformers.base") is None:
        raise SettingError("this sentence-transformers is too old", remedy="pip install 'sentence-transformers>=6'")
    tower = DualTower.of(model, head)
    if isinstance(tower.encoder, TransformerEncoder) and tower.encoder.layers > 1:
        raise SettingError(
            "sentence-transformers has no module that pools several layers side by side",
            remedy="export --to onnx, or train with encoder.options.layers: 1",
        )
    settings = tower.head.settings
    if settings.projection in ("gated_residual", "relu_residual") or getattr(settings, "own_projection", False):
        what = "own_projection" if getattr(settings, "own_projection", False) else settings.projection
        raise SettingError(f"sentence-transformers has no module for {what} of the head {tower.name!r}",
                           remedy="export --to onnx")  # fmt: skip
    check_target(folder, overwrite=overwrite)
    with writing_folder(folder, overwrite=overwrite) as target, quiet():
        _write(tower, target, model)
        tower.write_about(target, model, to="sentence-transformers", routes=not tower.tied)
    return tower


def _write(tower: DualTower, folder: Path, model: Model) -> None:
    """Save the modules."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    similarity = "cosine" if tower.head.search_normalise else "dot"
    label = _modules(tower, tower.label_length, model)
    if tower.tied:
        whole = SentenceTransformer(modules=label, similarity_fn_name=similarity, device="cpu")
    else:
        shared = None if tower.query_length != tower.label_length else label
        query = _modules(tower, tower.query_length, model, query=True, shared=shared)
        router = Router.for_query_document(query, label, default_route="query")
        whole = SentenceTransformer(modules=[router], similarity_fn_name=similarity, device="cpu")
    try:
        whole.save(str(folder), create_model_card=False, safe_serialization=True)
    except Exception as error:  # safetensors and tokenizers raise nothing more specific
        raise WriteError(f"could not write the model ({str(error).splitlines()[0]})", path=folder) from error


def _modules(
    tower: DualTower, length: int | None, model: Model, *, query: bool = False, shared: list[Any] | None = None
) -> list[Any]:
    """Return the modules of one side; those up to the head's projection can be shared with the other side."""
    from sentence_transformers.base.modules import Normalize

    head = tower.head
    if shared is None:
        modules = [*_encoder(tower, length, model), *_projection(head)]
    else:
        modules = [part for part in shared if not isinstance(part, Normalize)]
    if query and head.query_matrix is not None:
        modules.append(_dense(head.query_matrix.T))
    return [*modules, Normalize()] if head.search_normalise else modules


def _encoder(tower: DualTower, length: int | None, model: Model) -> list[Any]:
    """Return the modules up to the encoder's vectors; a transformer is loaded from a temporary folder."""
    encoder = tower.encoder
    if isinstance(encoder, BagEncoder) and tower.static:
        table = static_embedding(encoder, _known_texts(model))
        return [table] if encoder.layer is None else [table, _dense(encoder.layer, None, nn.ReLU(), use_residual=True)]
    if isinstance(encoder, BagEncoder):
        from megalabel.integrations.bag_module import Bag

        return [Bag(encoder, length)]
    from tempfile import TemporaryDirectory

    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with TemporaryDirectory() as plain:
        encoder.save(plain)
        part = Transformer(plain, model_kwargs={"local_files_only": True, "use_safetensors": True})
    part.max_seq_length = length
    part.tokenizer.padding_side = part.tokenizer.truncation_side = "right"
    modules = [part, Pooling(int(encoder.model.config.hidden_size), pooling_mode=encoder.pooling)]
    return modules if encoder.project is None else [*modules, _dense(encoder.project)]


def _known_texts(model: Model) -> Iterable[str]:
    """Return the texts of labels and, where they were saved, of training."""
    return chain(model.labels.texts, () if model.train_rows is None else model.train_rows.texts)


def _projection(head: DenseHead) -> list[Any]:
    """Return the head's projection as a list of modules; none if it is for training only."""
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    layers = head.projection
    if isinstance(layers, nn.Identity) or not head.settings.projects_search:
        return []
    if isinstance(layers, nn.Sequential):
        first, second = layers[0], layers[1]
        assert isinstance(first, nn.Linear)
        modules = [_dense(first.weight, first.bias, nn.Tanh() if isinstance(second, nn.Tanh) else None)]
        if isinstance(second, nn.LayerNorm):
            modules.append(LayerNorm(second.normalized_shape[0]))
            modules[-1].norm.load_state_dict(second.state_dict())
        return modules
    if isinstance(layers, ResidualIdentity):
        return [_dense(over_spectral_norm(layers.weight), layers.bias, nn.ReLU(), use_residual=True)]
    if isinstance(layers, GeluResidual):
        return [_dense(over_spectral_norm(layers.layer.weight), layers.layer.bias, nn.GELU(), use_residual=True)]
    weight: Tensor = layers.layer.weight  # type: ignore[assignment, union-attr]
    return [_dense(weight, None, nn.ReLU(), use_residual=True)]


def _dense(weight: Tensor, bias: Tensor | None = None, activation: nn.Module | None = None, **more: bool) -> Any:
    """Return activation(W x + b) as a module."""
    from sentence_transformers.base.modules import Dense

    start = {"init_weight": weight.detach().cpu().clone().contiguous()}
    if bias is not None:
        start["init_bias"] = bias.detach().cpu().clone()
    return Dense(weight.shape[1], weight.shape[0], bias is not None, activation, **start, **more)
