"""The network of a recipe: named encoders, dense heads, and the label spaces they score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from megalabel.errors import SettingError, nearest
from megalabel.heads.dense import DenseHead, DenseSettings
from megalabel.heads.dense.temperature import Temperature
from megalabel.network.gradcache import GradientCache
from megalabel.network.spaces import LabelSpace
from megalabel.network.texts import TextTokens
from megalabel.ranks import ALONE, Ranks
from megalabel.types import LABELS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from megalabel.heads.head import HeadSettings
    from megalabel.types import Tokens

__all__ = ["ENCODER", "Network"]

ENCODER = "encoder"  # the name of the only encoder of a recipe
_BFLOAT16_CAPABILITY = (8, 0)  # compute capability; older devices emulate bfloat16 slowly


class Network(nn.Module):
    """Encoders and dense heads, over label spaces.

    ``to(device)`` moves it like any module; texts are token ids, moved to the device of the weights. Encoders
    compute in ``precision``, heads and losses in float32. With several ranks, each holds the free vectors and biases
    of its shard of every space, and a full copy of everything else.

    Args:
        heads: settings by name; fitted heads are skipped, they are not part of the network.
        encoders: encoders as in :class:`megalabel.types.Encoder`, by name; the first is the default.
        spaces: label spaces by name; ``labels`` is one of them. A number means that many labels.
        lengths: (query_length, label_length) by encoder: tokens kept of each text; None keeps all.
        precision: precision of the encoders: auto, float32 or bfloat16; auto is bfloat16 for transformers on CUDA.
        frozen: encoders and heads, by name, that are not trained.
        ranks: the processes that train together.
    """

    def __init__(
        self,
        heads: Mapping[str, HeadSettings],
        encoders: Mapping[str, nn.Module],
        spaces: Mapping[str, LabelSpace] | int,
        *,
        lengths: Mapping[str, tuple[int | None, int | None]] | None = None,
        precision: str = "auto",
        frozen: Sequence[str] = (),
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(dict(encoders))
        self.default = next(iter(encoders))
        self.spaces = {LABELS: LabelSpace(LABELS, spaces)} if isinstance(spaces, int) else dict(spaces)
        self.lengths = dict(lengths or {})
        self.precision, self.frozen, self.ranks = precision, tuple(frozen), ranks
        self.heads = nn.ModuleDict()
        shared: dict[str, Temperature] = {}
        for name, settings in heads.items():
            if isinstance(settings, DenseSettings):
                self.heads[name] = self._build(settings, heads, shared)
        for name, head in self.heads.items():
            head.requires_grad_(self.head(name).loss is not None)
        for name in self.frozen:
            self._part(name).requires_grad_(False)

    def _build(
        self, settings: DenseSettings, heads: Mapping[str, HeadSettings], shared: dict[str, Temperature]
    ) -> DenseHead:
        space, more = self.spaces[settings.label_space], {}
        if settings.reads_paths and settings.candidates is not None:
            source = heads[settings.candidates.source]
            assert isinstance(source, DenseSettings)
            more["relation"] = self.spaces[source.label_space].relation(space)
        temperature, share = Temperature.of(settings.temperature), settings.temperature.share
        both = settings.query_encoder(self.default), settings.label_text_encoder(self.default)
        dims = [int(self.encoders[name].dim) for name in both]  # type: ignore[arg-type]
        if settings.reads_text and dims[0] != dims[1]:
            what = f"the vectors of {both[0]} have {dims[0]} numbers, those of {both[1]} {dims[1]}"
            raise SettingError(f"{what}; a head compares them", remedy="give both encoders the same dim")
        return settings.build(
            size=space.size,
            encoder_dim=dims[0],
            shard=None if self.ranks.alone else self.ranks.share(space.size),
            temperature=temperature if share is None else shared.setdefault(share, temperature),
            **more,
        )

    def _part(self, name: str) -> nn.Module:
        parts = {**dict(self.encoders.items()), **dict(self.heads.items())}
        if name not in parts:
            raise SettingError(f"there is no part {name!r} to freeze", remedy=nearest(name, parts))
        return parts[name]

    def train(self, mode: bool = True) -> Self:
        """Set training mode; frozen parts stay in evaluation mode, without dropout."""
        super().train(mode)
        for name in self.frozen:
            self._part(name).eval()
        return self

    def trained_heads(self) -> list[str]:
        """Return the heads whose losses a step computes: those that learn, and those that propose their candidates."""
        settings = {name: self.head(name).settings for name in self.heads}
        learn = [name for name in settings if settings[name].learns(name, self.frozen, self.default)]
        sources = {candidates.source for name in learn if (candidates := settings[name].candidates) is not None}
        return [name for name in settings if name in sources or name in learn]

    # ------------------------------------------------------------------ parts

    @property
    def labels(self) -> int:
        """Number of labels."""
        return self.spaces[LABELS].size

    @property
    def shard(self) -> range:
        """The labels whose rows this process holds."""
        return self.ranks.share(self.labels)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def encoder(self) -> nn.Module:
        """The first encoder, which is the only one of most recipes."""
        return self.encoders[self.default]

    @property
    def needs_text(self) -> bool:
        """Whether some head needs encoded label texts."""
        return any(self.head(name).needs_text for name in self.heads)

    def head(self, name: str) -> DenseHead:
        """Return a head by its name."""
        head = self.heads[name]
        assert isinstance(head, DenseHead)
        return head

    def space(self, head: str) -> LabelSpace:
        """Return the label space a head scores."""
        return self.spaces[self.head(head).settings.label_space]

    def query_encoder(self, head: str) -> str:
        """Return the name of the encoder of a head's queries."""
        return self.head(head).settings.query_encoder(self.default)

    def label_encoder(self, head: str) -> str:
        """Return the name of the encoder of a head's label texts."""
        return self.head(head).settings.label_text_encoder(self.default)

    def text_head(self) -> str | None:
        """Return the first head whose label vectors are their encoded texts and nothing else, if any."""
        return next((name for name in self.heads if self.head(name).settings.text_only), None)

    def mining_head(self) -> str:
        """Return the head whose vectors cluster queries and mine hard negatives.

        The first head over the labels that reads their texts, as in UniDEC (Kharbanda et al. 2024), else the first;
        that over groups if there is no other.
        """
        names = [name for name in self.heads if self.space(name).members is None] or [*self.heads]
        return next((name for name in names if self.head(name).needs_text), names[0])

    def stored(self) -> dict[str, Tensor]:
        """Return every parameter once, and what else the modules say belongs to their state (a running mean, say)."""
        parameters = dict(self.named_parameters())
        again = {name for name, _ in self.named_parameters(remove_duplicate=False)}
        buffers = {name: value for name, value in self.state_dict().items() if name not in again}
        return {name: value.detach() for name, value in (parameters | buffers).items()}

    def stored_heads(self) -> dict[str, Tensor]:
        """Return those of :meth:`stored` that belong to heads."""
        return {name: value for name, value in self.stored().items() if name.startswith("heads.")}

    def label_rows(self) -> dict[str, Tensor]:
        """Return the tensors with one row per label of the shard, by name: free vectors, biases, clusters."""
        return {
            f"heads.{head}.{name}": getattr(self.head(head), name)
            for head in self.heads
            for name in self.head(head).row_parameters().values()
        }

    def row_owner(self, parameter: str) -> range:
        """Return which rows of one of :meth:`label_rows` this process holds."""
        return self.head(parameter.split(".")[1]).shard

    def sharded(self) -> dict[str, Tensor]:
        """Return those of :meth:`label_rows` if other ranks hold other rows of them."""
        return {} if self.ranks.alone else self.label_rows()

    # ------------------------------------------------------------------ encoding

    def to_eval(self) -> None:
        """Call ``eval()`` if some part is in training mode; to look is faster than to set it for every query."""
        if any(module.training for module in self.modules()):
            self.eval()

    def tokenise(self, texts: Sequence[str]) -> TextTokens:
        """Return the tokens of the texts for every encoder."""
        return TextTokens.of(texts, dict(self.encoders.items()))

    def encode_queries(self, texts: TextTokens) -> dict[str, Tensor]:
        """Return the vectors of queries by every encoder that heads need, without gradient."""
        names = dict.fromkeys(self.query_encoder(name) for name in self.heads)
        return {name: self.encode(name, texts[name], self.length(name, labels=False)) for name in names}

    def encode_labels(self, texts: TextTokens) -> dict[str, Tensor]:
        """Return the vectors of label texts by every encoder that reads them, without gradient."""
        names = dict.fromkeys(self.label_encoder(name) for name in self.heads if self.head(name).needs_text)
        return {name: self.encode(name, texts[name], self.length(name, labels=True)) for name in names}

    def length(self, encoder: str, *, labels: bool) -> int | None:
        """Return how many tokens an encoder keeps of a query or of a label text; None for all."""
        return self.lengths.get(encoder, (None, None))[labels]

    def layers(self, encoder: str) -> list[int | tuple[int, ...] | None]:
        """Return the layers of an encoder that heads read, None for its output; of several, their mean."""
        users = [self.head(name) for name in self.heads]
        names = [(self.query_encoder(name), self.label_encoder(name)) for name in self.heads]
        wanted = {head.settings.layer for head, both in zip(users, names, strict=True) if encoder in both}
        return sorted(wanted, key=lambda layer: (layer is None, layer if isinstance(layer, tuple) else (layer or 0,)))

    def tapped(self, vectors: Tensor, encoder: str, head: str) -> Tensor:
        """Return the vectors [n, d] that a head reads from those of an encoder, [n, d] or [n, layers, d]."""
        if vectors.dim() == 2:
            return vectors
        return vectors[:, self.layers(encoder).index(self.head(head).settings.layer)]

    def encode(self, name: str, tokens: Tokens, length: int | None) -> Tensor:
        """Return the vectors of one encoder [n, d] without gradient, each distinct text encoded once.

        With layer taps the result is [n, layers, d]; see :meth:`tapped`.
        """
        distinct, inverse = tokens.unique()
        encoder = self.encoders[name]
        with self.autocast(name):
            vectors: Tensor = encoder.encode(distinct, max_length=length, **self._taps(name))  # type: ignore[operator]
        return _spread(vectors.to(next(self.parameters())), inverse)  # on the device and in the type of the weights

    def encode_with_gradient(
        self, cache: GradientCache, name: str, queries: Tokens | None, labels: Tokens | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the vectors of queries and of label texts through the gradient cache, each distinct text once.

        If both have the same maximum length and fit into one chunk, they are encoded in one call: the table of a bag
        then gets one gradient; adding up two would take a sixth of a step.
        """
        lengths = self.length(name, labels=False), self.length(name, labels=True)
        sides = [None if tokens is None else tokens.unique() for tokens in (queries, labels)]
        first, second = sides
        together = first is not None and second is not None and lengths[0] == lengths[1]
        if together and len(first[0]) + len(second[0]) <= cache.chunk_size:  # type: ignore[index]
            (texts, place), (label_texts, label_place) = first, second  # type: ignore[misc]
            vectors = self._vectors(cache, name, texts + label_texts, lengths[0])
            return _spread(vectors[: len(texts)], place), _spread(vectors[len(texts) :], label_place)
        encoded = [
            None if side is None else _spread(self._vectors(cache, name, side[0], length), side[1])
            for side, length in zip(sides, lengths, strict=True)
        ]
        return encoded[0], encoded[1]

    def _vectors(self, cache: GradientCache, name: str, tokens: Tokens, length: int | None) -> Tensor:
        with self.autocast(name):
            encoder = partial(self.encoders[name], **self._taps(name))  # bound: layers are no rows to cut into chunks
            vectors = cache.encode(encoder, tokens, max_length=length)
        return vectors if vectors.dtype == torch.float64 else vectors.float()

    def _taps(self, name: str) -> dict[str, tuple[int | tuple[int, ...], ...]]:
        layers = self.layers(name)
        if layers == [None] or not layers:
            return {}
        last: int = self.encoders[name].depth  # type: ignore[assignment]
        return {"layers": tuple(last if layer is None else layer for layer in layers)}

    def autocast(self, name: str) -> AbstractContextManager[None]:
        """Let an encoder compute in its precision; its weights and their gradients stay float32."""
        precision, device = self.precision, self.device
        kind = getattr(self.encoders[name], "kind", "")
        if precision == "auto" and kind == "transformer" and device.type == "cuda":
            precision = "bfloat16" if torch.cuda.get_device_capability(device) >= _BFLOAT16_CAPABILITY else "float32"
        return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()


def _spread(vectors: Tensor, place: NDArray[np.int64]) -> Tensor:
    """Return the vectors of all texts from those of the distinct ones."""
    if len(vectors) == len(place):
        return vectors
    return vectors.index_select(0, torch.from_numpy(place).to(vectors.device))
