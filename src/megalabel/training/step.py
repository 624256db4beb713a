"""One training step: encode queries and labels, score them, return the loss of every head.

Pool, all-label and candidate training go through here. They differ in the view of the batch alone: a pool of labels
shared by the batch (None is every label), or candidates of each row's own. Candidates may also come from the scores
of another head in the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, embedding_bag

from megalabel.batching.from_heads import HeadCandidates
from megalabel.losses import on_candidates, streamed
from megalabel.network.gradcache import GradientCache
from megalabel.training.distributed.shard import pool_part, pool_sizes, shard_view
from megalabel.types import LABELS

if TYPE_CHECKING:
    from megalabel.heads.dense import DenseHead
    from megalabel.network.network import Network
    from megalabel.network.texts import TextTokens
    from megalabel.types import Batch, View

__all__ = ["Step", "score_candidates"]

_QUERIES = 8  # whose candidate vectors are held at once
_ROWS = 64  # queries whose scores of all labels are held at once, to propose candidates


@dataclass(frozen=True)
class Step:
    """The losses of a network for one batch.

    Args:
        network: encoders, heads and label spaces.
        chunk_size: texts whose activations are held at once. Where a step has more, every text is encoded twice:
            first without a graph for the loss, then again, chunk by chunk, to send the gradient of its vector
            through the encoder (:class:`~megalabel.network.gradcache.GradientCache`); that second pass happens
            inside ``backward``.
        proposals: by head, what makes its candidates from the scores of another head.
    """

    network: Network
    chunk_size: int
    proposals: Mapping[str, HeadCandidates] | None = None

    def losses(
        self, batch: Batch, queries: TextTokens, labels: TextTokens, log_q: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the loss of each trained head, unweighted; ready for ``backward``.

        Queries and label texts are encoded once, through the gradient cache, whatever the number of heads. With
        several ranks, each encodes its share of the queries and the labels that are its own; the losses are those
        of the whole batch, and each rank has a part of the gradients of what all of them hold, to be added up.

        Args:
            batch: rows, and a view for each label space in use, on the network's device; the same on all ranks.
            queries: the texts of the batch's queries, all of them.
            labels: the texts of all labels.
            log_q: [P] log of the chance of each label to be in the pool.
        """
        network, ranks = self.network, self.network.ranks
        cache = GradientCache(self.chunk_size)
        own_queries = queries if ranks.alone else queries.take(ranks.share(len(queries)))
        trained = [name for name in network.heads if network.head(name).loss is not None]
        waiting = [name for name in trained if network.head(name).settings.candidates is not None]
        encoded, texts = self._encode(cache, batch, own_queries, labels, [n for n in trained if n not in waiting])
        losses: dict[str, Tensor] = {}
        sides: dict[str, _Side] = {}
        sources = {network.head(name).settings.candidates.source for name in waiting}  # type: ignore[union-attr]
        readers = [name for name in trained if name not in waiting and network.head(name).needs_text]
        for name in self._in_order(trained):
            head = network.head(name)
            vectors = network.tapped(encoded[network.query_encoder(name)], network.query_encoder(name), name)
            asked = head.query(vectors)
            if name in waiting:
                view = self._proposed(name, sides, batch)
                text = self._encode_texts(cache, name, view, labels)
            else:
                view = batch.views[head.settings.label_space]
                text = texts.get(name)
            if name in readers[-1:]:
                texts.clear()  # of all labels, their vectors alone are gigabytes
            side = _Side(name, asked, *head.labels(_own_pool(view, head, network), text), view)
            del text
            losses[name] = self._loss(head, side, log_q if head.settings.label_space == LABELS else None)
            if name in sources:
                sides[name] = side
        return losses

    def total(self, losses: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted sum of the heads' losses."""
        weighted = [self.network.head(name).settings.weight * value for name, value in losses.items()]
        return torch.stack(weighted).sum()

    # ------------------------------------------------------------------ encoding

    def _encode(
        self, cache: GradientCache, batch: Batch, queries: TextTokens, labels: TextTokens, heads: list[str]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the encoded queries by encoder, and the encoded label texts of these heads by head."""
        network = self.network
        wanted: dict[str, Tensor | None] = {}  # label ids by encoder, numbered from the first own label; None is all
        supports = {}
        for name in heads:
            head = network.head(name)
            if head.needs_text:
                pool = _own_pool(batch.views[LABELS], head, network)
                supports[name] = head.support(pool)
                encoder = network.label_encoder(name)
                known = wanted.get(encoder, supports[name])
                wanted[encoder] = _union(known, supports[name])
        encoded: dict[str, Tensor] = {}
        label_vectors: dict[str, Tensor] = {}
        readers = dict.fromkeys(network.query_encoder(name) for name in network.heads)
        for encoder in dict.fromkeys([*readers, *wanted]):
            asked = queries[encoder] if encoder in readers else None
            texts = self._label_tokens(labels, wanted[encoder])[encoder] if encoder in wanted else None
            first, second = network.encode_with_gradient(cache, encoder, asked, texts)
            if first is not None:
                encoded[encoder] = first
            if second is not None:
                label_vectors[encoder] = second
        return encoded, {
            name: network.tapped(
                _rows_of(label_vectors[network.label_encoder(name)], wanted[network.label_encoder(name)], support),
                network.label_encoder(name),
                name,
            )
            for name, support in supports.items()
        }

    def _encode_texts(self, cache: GradientCache, name: str, view: View, labels: TextTokens) -> Tensor | None:
        """Return the encoded texts of a pool that was not known before the step."""
        network, head = self.network, self.network.head(name)
        if not head.needs_text:
            return None
        encoder = network.label_encoder(name)
        tokens = self._label_tokens(labels, head.support(_own_pool(view, head, network)))
        vectors = network.encode_with_gradient(cache, encoder, None, tokens[encoder])[1]
        assert vectors is not None
        return network.tapped(vectors, encoder, name)

    def _label_tokens(self, labels: TextTokens, ids: Tensor | None) -> TextTokens:
        """Return the texts of own labels: all of them, or those with these numbers, counted from the first."""
        own = self.network.own
        if ids is None:
            return labels if self.network.ranks.alone else labels.cut(own.start, own.stop)
        return labels.take((ids + own.start).cpu().numpy())

    # ------------------------------------------------------------------ scores and losses

    def _loss(self, head: DenseHead, side: _Side, log_q: Tensor | None) -> Tensor:
        ranks, view = self.network.ranks, side.view
        assert head.loss is not None
        if view.candidates is not None:
            scores = self._candidate_scores(side, head)
            return on_candidates(head.loss, scores, view.targets, view.mask, view.candidates)
        part = view if ranks.alone else shard_view(view, head.own)
        if log_q is not None and not ranks.alone:
            log_q = log_q[pool_part(view.pool, head.own)]
        sizes = ranks.sizes(view.targets.shape[0])
        loss: Tensor = streamed(
            head.loss,
            ranks.gather_with_gradient(side.queries, sizes),
            side.vectors,
            part.targets,
            temperature=ranks.grad_on_rank0(head.temperature()),
            bias=side.bias,
            mask=part.mask,
            log_q=log_q,
            group=ranks.group,
        )
        return loss

    def _candidate_scores(self, side: _Side, head: DenseHead) -> Tensor:
        """Return the scores [B, S] of each row's own candidates, given what is here of queries and pool vectors."""
        ranks, view = self.network.ranks, side.view
        assert view.pool is not None and view.candidates is not None
        candidates, vectors, bias = view.candidates, side.vectors, side.bias
        if not ranks.alone:
            own = ranks.share(len(candidates))
            candidates = candidates[own.start : own.stop]
            sizes = pool_sizes(view.pool, ranks.sizes(head.size))
            vectors = ranks.gather_with_gradient(vectors, sizes, summed=True)
            bias = None if bias is None else ranks.gather_with_gradient(bias, sizes, summed=True)
        # padding may take any place: it is masked
        places = torch.searchsorted(view.pool, candidates.clamp_min(view.pool[0]))
        scores = score_candidates(side.queries / head.temperature(), vectors, places)
        scores = scores if bias is None else scores + embedding(places, bias.unsqueeze(1)).squeeze(2)
        return ranks.gather_with_gradient(scores, ranks.sizes(len(view.candidates)))

    # ------------------------------------------------------------------ candidates from another head

    def _in_order(self, names: list[str]) -> list[str]:
        """Return the heads so that each comes after the head its candidates are from."""
        ordered: list[str] = []
        while len(ordered) < len(names):
            for name in names:
                candidates = self.network.head(name).settings.candidates
                if name not in ordered and (candidates is None or candidates.source in ordered):
                    ordered.append(name)
        return ordered

    @torch.no_grad()
    def _proposed(self, name: str, sides: Mapping[str, _Side], batch: Batch) -> View:
        """Return a head's candidates: the best of its source head, and the positives of each row."""
        settings = self.network.head(name).settings.candidates
        assert settings is not None and self.proposals is not None
        best = self._best(sides[settings.source], self.network.head(settings.source), settings.top)
        view = self.proposals[name].view(batch.queries.cpu().numpy(), best.cpu().numpy())
        return view.to(self.network.device)

    def _best(self, side: _Side, head: DenseHead, top: int) -> Tensor:
        """Return the ids [B, top] that a head scores best in this step, -1 where there are fewer."""
        view = side.view
        if view.candidates is not None:
            scores = self._candidate_scores(side, head)
            assert view.mask is not None
            scores = scores.masked_fill(~view.mask, -torch.inf)
            best = scores.topk(min(top, scores.shape[1]), dim=1)
            return view.candidates.gather(1, best.indices).masked_fill(best.values == -torch.inf, -1)
        parts = []
        for queries in torch.split(side.queries / head.temperature(), _ROWS):
            scores = queries @ side.vectors.T
            scores = scores if side.bias is None else scores + side.bias
            parts.append(scores.topk(min(top, scores.shape[1]), dim=1).indices)
        places = torch.cat(parts)
        return places if view.pool is None else view.pool[places]


@dataclass(frozen=True)
class _Side:
    """Both sides of a head's scores in a step, and the labels they are of."""

    name: str
    queries: Tensor  # [B here, d]
    vectors: Tensor  # [P here, d]
    bias: Tensor | None  # [P here]
    view: View


def _own_pool(view: View, head: DenseHead, network: Network) -> Tensor | None:
    """Return the labels of a view that are here, numbered from the first own one; None is all of them."""
    if view.pool is None or network.ranks.alone:
        return view.pool
    return view.pool[pool_part(view.pool, head.own)] - head.own.start


def _union(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return None
    union: Tensor = first if first is second else torch.unique(torch.cat([first, second]))
    return union


def _rows_of(vectors: Tensor, ids: Tensor | None, wanted: Tensor | None) -> Tensor:
    """Return the rows of ``wanted`` labels from vectors of ascending ``ids``."""
    if wanted is ids or wanted is None:
        return vectors
    places = wanted if ids is None else torch.searchsorted(ids, wanted)
    return vectors.index_select(0, places)


def score_candidates(queries: Tensor, vectors: Tensor, places: Tensor) -> Tensor:
    r"""Return s [B, S], :math:`s_{ij} = \langle q_i, v_{p_{ij}} \rangle`, without ever holding [B, S, d].

    Args:
        queries: q [B, d].
        vectors: v [P, d] of all labels that are a candidate of some query.
        places: p [B, S], rows of ``vectors``; a row may be named any number of times.

    Gradients are bags of rows, added up in the same order in every run with the same number of threads.

    >>> score_candidates(torch.tensor([[1.0, 2.0]]), torch.eye(2), torch.tensor([[1, 0, 1]])).tolist()
    [[2.0, 1.0, 2.0]]
    """
    scores: Tensor = _Scores.apply(queries, vectors, places)  # type: ignore[no-untyped-call]
    return scores


class _Scores(Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, vectors: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(queries, vectors, places)
        b, width = places.shape
        scores = queries.new_empty(b, width, 1)
        for start in range(0, b, _QUERIES):
            block = slice(start, start + _QUERIES)
            asked = queries[block].unsqueeze(2)
            picked = vectors.index_select(0, places[block].flatten()).view(len(asked), width, asked.shape[1])
            torch.bmm(picked, asked, out=scores[block])
        return scores.squeeze(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        queries, vectors, places = ctx.saved_tensors
        flat, weights = places.flatten(), gradient.flatten()
        starts = torch.arange(len(places) + 1, device=flat.device) * places.shape[1]
        of_queries = _bags(flat, vectors, starts, weights)
        order = torch.argsort(flat, stable=True)  # cells by label
        counts = torch.bincount(flat, minlength=len(vectors))
        rows = order.div(max(1, places.shape[1]), rounding_mode="floor")
        of_vectors = _bags(rows, queries, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), weights[order])
        return of_queries, of_vectors, None


def _bags(rows: Tensor, table: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sums of table rows, one for each stretch between two offsets."""
    sums: Tensor = embedding_bag(
        rows, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights.to(table.dtype)
    )
    return sums
