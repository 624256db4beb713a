"""Load a checkpoint of the DEXML code (Gupta et al., ICLR 2024) as a model."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from megalabel.documents import read_yaml
from megalabel.encoders import TransformerEncoder
from megalabel.encoders._arrays import write_tensors
from megalabel.encoders._source import folder_of, stays_local
from megalabel.errors import DataError, MissingExtraError, SettingError
from megalabel.model import LabelStats, Model
from megalabel.recipes.build import build_network
from megalabel.recipes.load_recipe import load_recipe
from megalabel.recipes.published import load_published

if TYPE_CHECKING:
    from os import PathLike

    from megalabel.data.dataset import Dataset

__all__ = ["import_dexml"]

_SAFE = (2, 6)  # before it, weights_only could be made to run code (CVE-2025-32434)
_POOLERS = {"cls": ("cls", 1), "mean": ("mean", 1), "lightxml": ("cls", 5)}  # tf_pooler: pooling, layers
_CLASSIFIER = ("all_w.", "local_w.")
_STATE = ("model.pt", "model.safetensors", "pytorch_model.bin")


def import_dexml(
    checkpoint: str | PathLike[str],
    data: Dataset,
    *,
    base: str | None = None,
    pooling: Literal["cls", "mean", "lightxml"] | None = None,
    max_length: int | None = None,
    normalise: bool | None = None,
) -> Model:
    """Return a checkpoint of the DEXML code as a model like any other.

    There are two formats. ``model.pt``, which training writes, is a state dict: ``tf.*`` is the
    transformer, ``bottleneck.*`` the linear layer after it if ``bottleneck_dim`` is not 0;
    ``config.yaml`` beside it holds the settings. The released models are folders of a plain
    transformer (config.json and weights). In both, a query or label text is encoded as

        normalise(bottleneck(pool(tf(tokens))))

    A .pt or .bin file is a pickle, which can contain arbitrary code. It is loaded by
    ``torch.load(weights_only=True)``, which accepts only tensors and plain containers, and only
    by a torch version in which that is safe (2.6 or newer).

    Args:
        checkpoint: model.pt, the folder that holds it, or the folder of a released model.
        data: the set it was trained on: label texts, and label frequencies for propensities.
        base: folder or name of the model that training started from; only its config and tokenizer
            are read. By default ``tf`` of config.yaml, or the checkpoint's folder.
        pooling: ``tf_pooler`` of the run.
        max_length: ``tf_max_len`` of the run, tokens.
        normalise: ``norm_embs`` of the run.

    Settings that are not given come from config.yaml; without that file, from the released
    configuration for the data set of that name; otherwise they are cls, 32 and True.
    """
    if find_spec("transformers") is None:
        raise MissingExtraError("transformers", extra="hf", what="a transformer encoder")
    loaded = _read(Path(checkpoint))
    settings = _settings(loaded, data.name, pooling, max_length, normalise)
    pooler, layers = _pooler(settings["tf_pooler"], loaded.path)
    encoder = _encoder(loaded, base or settings.get("tf"), pooler, layers, settings["tf_max_len"])
    length = encoder.max_length
    dim = None if loaded.bottleneck is None else len(loaded.bottleneck["weight"])
    changes = [
        f"encoder.source={encoder.source}",
        f"encoder.options={{pooling: {pooler}, layers: {layers}}}",
        f"encoder.query_length={length}",
        f"encoder.label_length={length}",
        f"heads.dual.normalise={str(bool(settings['norm_embs'])).lower()}",
        f"heads.dual.temperature.value={float(settings['tau'])}",
        *([] if dim is None else [f"heads.dual.dim={dim}", "heads.dual.projection=linear"]),
    ]
    recipe = load_recipe("dexml", changes)
    network = build_network(recipe, encoder, len(data.labels))
    if loaded.bottleneck is not None:
        _fill(network.head("dual").projection, loaded)
    network.eval()
    return Model(recipe, network, data.labels, {"dual": 1.0}, LabelStats.of(data))


@dataclass(frozen=True)
class _Checkpoint:
    """The content of a checkpoint."""

    path: Path  # of the weights
    transformer: dict[str, Tensor]
    bottleneck: dict[str, Tensor] | None
    config: dict[str, Any]  # of config.yaml
    transformer_folder: Path | None  # of a released model


def _read(checkpoint: Path) -> _Checkpoint:
    """Read weights and settings of either format."""
    path = checkpoint
    if checkpoint.is_dir():
        files = [checkpoint / name for name in _STATE if (checkpoint / name).is_file()]
        if not files:
            raise DataError("no checkpoint in this folder", path=checkpoint, remedy=f"{_STATE[0]} is one")
        path = files[0]
    elif not checkpoint.is_file():
        raise DataError("no such file", path=checkpoint)
    state = {name.removeprefix("module."): value for name, value in _tensors(path).items()}
    folder = path.parent if path.name != _STATE[0] and (path.parent / "config.json").is_file() else None
    config = _yaml(path.parent / "config.yaml")
    if folder is not None:
        return _Checkpoint(path, state, None, config, folder)
    if any(name.startswith(_CLASSIFIER) for name in state):
        raise DataError("this is a classifier with one vector per label; only dual encoders can be imported", path=path)
    transformer = {name.removeprefix("tf."): value for name, value in state.items() if name.startswith("tf.")}
    rest = {name: value for name, value in state.items() if not name.startswith("tf.")}
    bottleneck = {name: rest.pop(f"bottleneck.{name}") for name in ("weight", "bias") if f"bottleneck.{name}" in rest}
    if rest or not transformer or len(bottleneck) == 1:
        unexpected = next(iter(rest), None)
        what = "tf.* or bottleneck.* is missing" if unexpected is None else f"unexpected weight {unexpected}"
        raise DataError(f"this is not a checkpoint of a DEXML dual encoder: {what}", path=path)
    return _Checkpoint(path, transformer, bottleneck or None, config, None)


def _tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from safetensors, or from a pickle without running code in it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix != ".safetensors" and tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE:
        raise SettingError("this torch cannot read .pt files safely", path=path, remedy="pip install 'torch>=2.6'")
    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError("this file contains more than tensors and was not loaded", path=path) from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(f"the weights cannot be read ({str(error).strip().splitlines()[0]})", path=path) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError("expected a state dict, tensors by name", path=path)
    return {str(name): value for name, value in state.items()}


def _yaml(path: Path) -> dict[str, Any]:
    """Return the settings of a run; empty if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        settings = read_yaml(path)
    except SettingError as error:
        raise DataError(f"the settings cannot be read ({error.what})", path=path, line=error.line) from error
    return settings if isinstance(settings, dict) else {}


def _settings(
    loaded: _Checkpoint, data: str, pooling: str | None, max_length: int | None, normalise: bool | None
) -> dict[str, Any]:
    """Return the settings by their names in the DEXML code."""
    released = next((part.changes for part in load_published("dexml") if part.data == data), ())
    settings = [change for change in released if change.startswith(("encoder.", "heads."))]
    usual = load_recipe("dexml", settings)
    head = usual.dense_heads["dual"]
    default: dict[str, Any] = {"tf_pooler": "cls", "tf_max_len": usual.encoder.query_length}
    default |= {"norm_embs": head.normalise, "tau": head.temperature.value}
    given = {"tf_pooler": pooling, "tf_max_len": max_length, "norm_embs": normalise}
    return default | loaded.config | {name: value for name, value in given.items() if value is not None}


def _pooler(name: Any, path: Path) -> tuple[Literal["mean", "cls"], int]:
    if name not in _POOLERS:
        raise SettingError(f"pooling is {name!r}", path=path, remedy=f"choose one of: {', '.join(_POOLERS)}")
    pooling, layers = _POOLERS[name]
    return ("cls" if pooling == "cls" else "mean"), layers


def _encoder(
    loaded: _Checkpoint, base: str | None, pooling: Literal["mean", "cls"], layers: int, max_length: int
) -> TransformerEncoder:
    """Build the encoder from config and tokenizer of the base and the weights of the checkpoint."""
    folder = loaded.transformer_folder
    files = ("tokenizer.json", "vocab.txt")
    has_tokenizer = folder is not None and any((folder / name).is_file() for name in files)
    tokenizer = str(folder) if has_tokenizer else base
    if tokenizer is None:
        raise SettingError(
            "the checkpoint has no tokenizer", path=loaded.path, remedy="name the base model: base, --base"
        )
    with TemporaryDirectory() as plain:
        _copy_plain(tokenizer if folder is None else str(folder), tokenizer, plain)
        weights = {name: value.float().clone() for name, value in loaded.transformer.items()}
        write_tensors(Path(plain) / "model.safetensors", weights)
        try:
            encoder = TransformerEncoder(plain, pooling=pooling, layers=layers, max_length=int(max_length))
        except SettingError as error:
            raise SettingError(error.what.replace(repr(plain), repr(tokenizer)), path=loaded.path) from error
    extra = sorted(name for name in weights.keys() - encoder.model.state_dict().keys() if "position_ids" not in name)
    extra = [name for name in extra if not name.startswith(("pooler.", "vocab_", "cls."))]  # heads of other tasks
    if extra:
        raise DataError(
            f"{extra[0]} does not exist in {tokenizer}",
            path=loaded.path,
            remedy="give the base that training started from",
        )
    encoder.source = base or tokenizer
    return encoder


def _copy_plain(model: str, tokenizer: str, folder: str) -> None:
    """Write config and tokenizer of two sources into a folder."""
    from transformers import AutoConfig, AutoTokenizer

    for kind, source in ((AutoConfig, model), (AutoTokenizer, tokenizer)):
        local = folder_of(source)
        name = source if local is None else str(local)
        try:
            kind.from_pretrained(name, local_files_only=local is not None or stays_local(name)).save_pretrained(folder)
        except Exception as error:  # anything that can be wrong with the files of a model
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SettingError(
                f"config and tokenizer of {source!r} cannot be read ({first})", remedy="give base, a folder or a name"
            ) from error


def _fill(projection: nn.Module, loaded: _Checkpoint) -> None:
    """Copy the bottleneck into the head's linear layer."""
    assert isinstance(projection, nn.Sequential) and isinstance(projection[0], nn.Linear)
    assert loaded.bottleneck is not None
    layer = projection[0]
    if layer.weight.shape != loaded.bottleneck["weight"].shape:
        shape, expected = list(loaded.bottleneck["weight"].shape), list(layer.weight.shape)
        raise DataError(f"bottleneck.weight is {shape}, {expected} was expected", path=loaded.path)
    with torch.no_grad():
        layer.weight.copy_(loaded.bottleneck["weight"])
        layer.bias.copy_(loaded.bottleneck["bias"])
