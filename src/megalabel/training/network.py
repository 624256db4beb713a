"""The network a recipe describes: one encoder, the heads on it, and the step that trains them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from megalabel.heads import Head, Temperature
from megalabel.losses import on_candidates, streamed
from megalabel.losses.settings import build_loss
from megalabel.ranks import ALONE, Ranks
from megalabel.training.gradcache import GradientCache
from megalabel.training.score_candidates import score_candidates
from megalabel.training.shard_batch import pool_part, pool_sizes, shard_batch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from megalabel.recipes.schema import Recipe
    from megalabel.types import Batch, Tokens

__all__ = ["Network"]

_HAS_BFLOAT16 = (8, 0)  # compute capability; older devices imitate it slowly


class Network(nn.Module):
    """Encoder and heads of a recipe.

    ``to(device)`` moves it as any module; texts come as token ids and go to where the weights
    are. The encoder computes in the recipe's precision, heads and losses in float32.

    With several ranks, each holds the free vectors and biases of its own labels, and all the rest.

    Args:
        recipe: names the heads, their towers, temperatures and losses.
        encoder: an encoder as in :class:`megalabel.types.Encoder`.
        labels: number of labels.
        ranks: the processes that train it together.
    """

    def __init__(self, recipe: Recipe, encoder: nn.Module, labels: int, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.recipe = recipe
        self.encoder = encoder
        self.ranks = ranks
        self.labels = labels
        self.own = ranks.share(labels)  # the labels whose rows are here
        shared: dict[str, Temperature] = {}
        self.heads = nn.ModuleDict()
        for name, settings in recipe.heads.items():
            own = Temperature(settings.temperature.value, learn=settings.temperature.learn)
            share = settings.temperature.share
            self.heads[name] = Head(
                labels=labels,
                own=None if ranks.alone else self.own,
                encoder_dim=int(encoder.dim),  # type: ignore[arg-type]
                tower=settings.tower,
                dim=settings.dim,
                projection=settings.projection,
                dropout=settings.dropout,
                row_dropout=settings.row_dropout,
                query_matrix=settings.query_matrix,
                normalise=settings.normalise,
                search_normalise=settings.search_normalise,
                bias=settings.bias,
                temperature=own if share is None else shared.setdefault(share, own),
            )
        self.encoder.requires_grad_(not recipe.training.freeze)
        for name, settings in recipe.heads.items():
            self.heads[name].requires_grad_(settings.weight > 0)
        self._losses = {name: build_loss(settings.loss) for name, settings in recipe.heads.items()}
        self._weights = {name: settings.weight for name, settings in recipe.heads.items()}

    @property
    def needs_text(self) -> bool:
        """Whether some head wants label texts encoded."""
        return any(self.head(name).needs_text for name in self.heads)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def head(self, name: str) -> Head:
        """Return a head by its name."""
        head = self.heads[name]
        assert isinstance(head, Head)
        return head

    def label_rows(self) -> dict[str, nn.Parameter]:
        """Return the parameters with a row for each label that is here, by name: free vectors and biases."""
        heads = [self.head(name) for name in self.heads]
        found = {id(part) for head in heads for part in (head.table, head.bias) if part is not None}
        return {name: part for name, part in self.named_parameters() if id(part) in found}

    def sharded(self) -> dict[str, nn.Parameter]:
        """Return those of :meth:`label_rows` if other ranks hold other rows of them."""
        return {} if self.ranks.alone else self.label_rows()

    def loss(
        self, batch: Batch, queries: Tokens, labels: Tokens | None, log_q: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the loss of each head that has a weight for a batch, unweighted; ready for ``backward``.

        Queries and label texts are encoded once, through the gradient cache, whatever the
        number of heads. With several ranks, each encodes its share of the queries and the labels that are
        its own; the losses are those of the whole batch, and of the gradients of what all ranks hold
        each has a part, to be added up.

        Args:
            batch: rows, pool and targets, on the network's device; the same on all ranks.
            queries: tokens of the batch's queries, all of them.
            labels: tokens of the label texts of the pool, or its part that is here; None if no head wants them.
            log_q: [P] log of the chance of each label to be in the pool.
        """
        cache, ranks = GradientCache(self.recipe.training.chunk_size), self.ranks
        sizes = ranks.sizes(len(queries))
        if not ranks.alone:
            queries = queries.take(ranks.share(len(queries)))
        encoded, texts = self._encode(cache, queries, labels if self.needs_text else None)
        part = batch if ranks.alone else shard_batch(batch, self.own)
        if log_q is not None and not ranks.alone:
            log_q = log_q[pool_part(batch.pool, self.own)]
        found = {}
        trained = [name for name in self.heads if self._weights[name]]
        reading = [name for name in trained if self.head(name).needs_text]
        for name in trained:
            head = self.head(name)
            vectors, bias = head.labels(part.pool, texts)
            if name in reading[-1:]:
                texts = None  # of all labels, their vectors alone are gigabytes
            if batch.candidates is not None:
                scores = self._score_candidates(batch, head.query(encoded) / head.temperature(), vectors, bias)
                found[name] = on_candidates(self._losses[name], scores, batch.targets, batch.mask, batch.candidates)
                continue
            found[name] = streamed(
                self._losses[name],
                ranks.gather_with_gradient(head.query(encoded), sizes),
                vectors,
                part.targets,
                temperature=ranks.grad_on_rank0(head.temperature()),
                bias=bias,
                mask=part.mask,
                log_q=log_q,
                group=ranks.group,
            )
        return found

    def total(self, parts: dict[str, Tensor]) -> Tensor:
        """Return the weighted sum of the heads' losses."""
        return torch.stack([self._weights[name] * value for name, value in parts.items()]).sum()

    def encode(self, tokens: Tokens, length: int | None) -> Tensor:
        """Return encoder vectors [n, encoder_dim] without gradient, each distinct text encoded once."""
        distinct, inverse = tokens.unique()
        with self._precision():
            found: Tensor = self.encoder.encode(distinct, max_length=length)  # type: ignore[operator]
        return _spread(found.to(next(self.parameters())), inverse)  # where the weights are, and of their type

    def _encode(self, cache: GradientCache, queries: Tokens, labels: Tokens | None) -> tuple[Tensor, Tensor | None]:
        """Encode every distinct query and every distinct label text once.

        Where both are cut alike and fit into one chunk they are encoded in one go: a table of features then
        gets one gradient, where adding up two takes a sixth of a step.
        """
        lengths = self.recipe.encoder.query_length, self.recipe.encoder.label_length
        first, place = queries.unique()
        if labels is None:
            return _spread(self._vectors(cache, first, lengths[0]), place), None
        second, label_place = labels.unique()
        if lengths[0] == lengths[1] and len(first) + len(second) <= cache.chunk_size:
            vectors = self._vectors(cache, first + second, lengths[0])
            both = vectors[: len(first)], vectors[len(first) :]
        else:
            both = self._vectors(cache, first, lengths[0]), self._vectors(cache, second, lengths[1])
        return _spread(both[0], place), _spread(both[1], label_place)

    def _vectors(self, cache: GradientCache, tokens: Tokens, length: int | None) -> Tensor:
        with self._precision():
            return _wide(cache.encode(self.encoder, tokens, max_length=length))

    def _precision(self) -> AbstractContextManager[None]:
        """Let the encoder compute as the recipe says; its weights and their gradients stay float32."""
        wanted, device = self.recipe.training.precision, self.device
        if wanted == "auto" and self.recipe.encoder.kind == "transformer" and device.type == "cuda":
            wanted = "bfloat16" if torch.cuda.get_device_capability(device) >= _HAS_BFLOAT16 else "float32"
        return torch.autocast(device.type, dtype=torch.bfloat16) if wanted == "bfloat16" else nullcontext()

    def _score_candidates(self, batch: Batch, queries: Tensor, vectors: Tensor, bias: Tensor | None) -> Tensor:
        """Return the scores [B, S] of each row's own candidates, given what is here of queries and of pool vectors."""
        assert batch.pool is not None and batch.candidates is not None
        ranks, candidates = self.ranks, batch.candidates
        if not ranks.alone:
            own = ranks.share(len(candidates))
            candidates = candidates[own.start : own.stop]
            sizes = pool_sizes(batch.pool, ranks.sizes(self.labels))
            vectors = ranks.gather_with_gradient(vectors, sizes, summed=True)
            bias = None if bias is None else ranks.gather_with_gradient(bias, sizes, summed=True)
        # padding takes any: it is masked
        places = torch.searchsorted(batch.pool, candidates.clamp_min(batch.pool[0]))
        scores = score_candidates(queries, vectors, places)
        scores = scores if bias is None else scores + embedding(places, bias.unsqueeze(1)).squeeze(2)
        return ranks.gather_with_gradient(scores, ranks.sizes(len(batch.candidates)))


def _spread(vectors: Tensor, place: NDArray[np.int64]) -> Tensor:
    """Return the vectors of all texts from those of the distinct ones."""
    if len(vectors) == len(place):
        return vectors
    return vectors.index_select(0, torch.from_numpy(place).to(vectors.device))


def _wide(vectors: Tensor) -> Tensor:
    """Return vectors of at least float32."""
    return vectors if vectors.dtype == torch.float64 else vectors.float()
