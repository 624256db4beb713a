"""One training step: encode queries and labels, score them, return the loss of every head.

Pool, all-label and candidate training take the same step. They differ only in the view of the batch: a pool of labels
shared by the batch (None is every label), or candidates per row. Candidates may also come from the scores
of another head in the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn.functional import embedding

from megalabel.batching.from_heads import HeadCandidates
from megalabel.errors import SettingError
from megalabel.heads.dense import Points
from megalabel.heads.dense.paths import PathHead
from megalabel.losses import on_candidates, streamed
from megalabel.network.gradcache import GradientCache
from megalabel.training.candidate_scores import score_candidates
from megalabel.training.distributed.shard import pool_part, pool_sizes, shard_view
from megalabel.types import LABELS

if TYPE_CHECKING:
    from megalabel.heads.dense import DenseHead
    from megalabel.network.network import Network
    from megalabel.network.texts import TextTokens
    from megalabel.types import Batch, View

__all__ = ["Step"]

_ROWS = 64  # queries scored against all labels at a time, to propose candidates


@dataclass(frozen=True)
class Step:
    """The losses of a network for one batch.

    Args:
        network: encoders, heads and label spaces.
        chunk_size: texts whose activations are in memory at once. If a step has more, every text is encoded
            twice: first without a graph for the loss, then, inside ``backward``, chunk by chunk, to send the
            gradient of its vector through the encoder (:class:`~megalabel.network.gradcache.GradientCache`).
        proposals: by head, the builder of its candidates from the scores of another head.

    The label texts of a frozen encoder are encoded once, in the first step, and their vectors cached.
    """

    network: Network
    chunk_size: int
    proposals: Mapping[str, HeadCandidates] | None = None
    _frozen: dict[str, Tensor] = field(default_factory=dict, repr=False)  # [labels of the shard, d] by encoder

    def losses(
        self,
        batch: Batch,
        queries: TextTokens,
        labels: TextTokens,
        log_q: Tensor | None = None,
        points: TextTokens | None = None,
        epoch: int = 0,
    ) -> dict[str, Tensor]:
        """Return the loss of each trained head, unweighted; ready for ``backward``.

        Queries and label texts are encoded once, through the gradient cache, whatever the number of heads. With
        several ranks, each encodes its share of the queries and the labels of its shard; the losses are those
        of the whole batch, and the gradients of shared parameters must be summed over the ranks.

        Args:
            batch: rows, and a view for each label space in use, on the network's device; the same on all ranks.
            queries: the texts of the batch's queries, all of them.
            labels: the texts of all labels.
            log_q: [P] log of the probability that a label is in the pool.
            points: the texts of all train points, for heads that read those of neighbours or of partners.
            epoch: of the step, counted from 0, for heads that do not train the encoders at first.
        """
        network, ranks = self.network, self.network.ranks
        cache = GradientCache(self.chunk_size)
        own_queries = queries if ranks.alone else queries.take(ranks.share(len(queries)))
        own = len(own_queries)
        trained = network.trained_heads()
        waiting = [name for name in trained if network.head(name).settings.candidates is not None]
        if any(network.head(name).settings.centroid_weight for name in trained):
            own_queries = own_queries + self._partners(batch, points)
        neighbours = self._neighbours(batch, trained, waiting)
        if neighbours:
            assert points is not None
            own_queries = own_queries + points.take(torch.cat([*neighbours.values()]).cpu().numpy())
        encoded, texts = self._encode(cache, batch, own_queries, labels, [n for n in trained if n not in waiting])
        losses: dict[str, Tensor] = {}
        sides: dict[str, _Side] = {}
        sources = {network.head(name).settings.candidates.source for name in waiting}  # type: ignore[union-attr]
        readers = [name for name in trained if name not in waiting and network.head(name).needs_text]
        for name in self._in_order(trained):
            head = network.head(name)
            vectors = network.tapped(encoded[network.query_encoder(name)], network.query_encoder(name), name)
            detached = epoch < head.settings.detach_epochs
            vectors = vectors.detach() if detached else vectors
            query_vectors = head.query(vectors[:own])
            paths = None
            if isinstance(head, PathHead):
                view, paths = self._reached(name, head, sides, batch)
                text = None
            elif name in waiting:
                view = self._proposed(name, sides, batch)
                text = self._encode_texts(cache, name, view, labels)
            else:
                view = batch.views[head.settings.label_space]
                text = texts.get(name)
            text = text.detach() if detached and text is not None else text
            if name in readers[-1:]:
                texts.clear()  # the vectors of all labels take gigabytes
            pool = _own_pool(view, head, network)
            near = (
                Points(neighbours[name], vectors[_place(neighbours, name, len(vectors))])
                if name in neighbours
                else None
            )
            side = _Side(name, query_vectors, *head.labels(pool, text, points=near), view)
            own_log_q = log_q if head.settings.label_space == LABELS else None
            losses[name] = self._loss(head, side, own_log_q, paths)
            if weight := head.settings.centroid_weight:
                rows = self._anchors(batch, view, head, head.rows(pool, text))
                second = replace(side, queries=head.centroids(vectors[own : 2 * own], rows))
                losses[name] = (1 - weight) * losses[name] + weight * self._loss(head, second, own_log_q)
            del text
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
        wanted: dict[
            str, Tensor | None
        ] = {}  # label ids by encoder, counted from the first label of the shard; None is all
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
            query_texts = queries[encoder] if encoder in readers else None
            reads = encoder in wanted and encoder not in network.frozen
            texts = self._label_tokens(labels, wanted[encoder])[encoder] if reads else None
            first, second = network.encode_with_gradient(cache, encoder, query_texts, texts)
            if first is not None:
                encoded[encoder] = first
            if second is not None:
                label_vectors[encoder] = second
            elif encoder in wanted:
                label_vectors[encoder] = self._frozen_vectors(encoder, labels, wanted[encoder])
        return encoded, {
            name: network.tapped(
                _rows_of(label_vectors[network.label_encoder(name)], wanted[network.label_encoder(name)], support),
                network.label_encoder(name),
                name,
            )
            for name, support in supports.items()
        }

    def _encode_texts(self, cache: GradientCache, name: str, view: View, labels: TextTokens) -> Tensor | None:
        """Return the encoded texts of a pool that was built during the step."""
        network, head = self.network, self.network.head(name)
        if not head.needs_text:
            return None
        encoder, support = network.label_encoder(name), head.support(_own_pool(view, head, network))
        if encoder in network.frozen:
            return network.tapped(self._frozen_vectors(encoder, labels, support), encoder, name)
        vectors = network.encode_with_gradient(cache, encoder, None, self._label_tokens(labels, support)[encoder])[1]
        assert vectors is not None
        return network.tapped(vectors, encoder, name)

    def _frozen_vectors(self, encoder: str, labels: TextTokens, ids: Tensor | None) -> Tensor:
        """Return the vectors of the shard's label texts by a frozen encoder: all, or those with these ids."""
        if encoder not in self._frozen:
            tokens = self._label_tokens(labels, None)[encoder]
            self._frozen[encoder] = self.network.encode(encoder, tokens, self.network.length(encoder, labels=True))
        vectors = self._frozen[encoder]
        return vectors if ids is None else vectors.index_select(0, ids)

    def _label_tokens(self, labels: TextTokens, ids: Tensor | None) -> TextTokens:
        """Return the texts of the labels of the shard: all, or those with these ids, counted from its first label."""
        shard = self.network.shard
        if ids is None:
            return labels if self.network.ranks.alone else labels.cut(shard.start, shard.stop)
        return labels.take((ids + shard.start).cpu().numpy())

    # ------------------------------------------------------------------ further texts of train points

    def _partners(self, batch: Batch, points: TextTokens | None) -> TextTokens:
        """Return the texts of the second points of the labels that this rank's queries were drawn for."""
        if batch.partners is None or points is None:
            raise SettingError(
                "a head has a centroid, but the batches are not made of labels",
                remedy="set batching.order to by_label, or centroid to 0",
            )
        share = self.network.ranks.share(len(batch.partners))
        return points.take(batch.partners[share.start : share.stop].cpu().numpy())

    def _anchors(self, batch: Batch, view: View, head: DenseHead, rows: Tensor) -> Tensor:
        """Return the rows [B here, d] of the labels that this rank's queries were drawn for."""
        ranks, pool = self.network.ranks, view.pool
        assert batch.anchors is not None
        if not ranks.alone:
            sizes = ranks.sizes(head.size)
            rows = ranks.gather_with_gradient(rows, sizes if pool is None else pool_sizes(pool, sizes), summed=True)
        share = ranks.share(len(batch.anchors))
        anchors = batch.anchors[share.start : share.stop]
        if pool is None:
            return rows.index_select(0, anchors)
        places = torch.searchsorted(pool, anchors).clamp_max(len(pool) - 1)
        if not torch.equal(pool[places], anchors):
            raise SettingError(
                "the pool of a step lacks a label that a query was drawn for", remedy="leave batching.cap out"
            )
        return rows.index_select(0, places)

    def _neighbours(self, batch: Batch, trained: list[str], waiting: list[str]) -> dict[str, Tensor]:
        """Return the train points that heads want to read besides the queries, by head."""
        neighbours = {}
        for name in trained:
            head = self.network.head(name)
            if not head.settings.reads_points:
                continue
            view = None if name in waiting else batch.views[head.settings.label_space]
            if view is None or view.pool is None:
                raise SettingError(
                    f"the head {name!r} reads the neighbours of the labels of a step, so a step cannot have all labels",
                    remedy="set batching.labels to pool or candidates",
                )
            ids = head.points(view.pool, batch.queries)
            assert ids is not None
            neighbours[name] = ids
        return neighbours

    # ------------------------------------------------------------------ scores and losses

    def _loss(self, head: DenseHead, side: _Side, log_q: Tensor | None, paths: Tensor | None = None) -> Tensor:
        ranks, view = self.network.ranks, side.view
        assert head.loss is not None
        if view.candidates is not None:
            scores = self._candidate_scores(side, head)
            if isinstance(head, PathHead) and paths is not None:
                return head.path_loss(scores, paths, view)
            return on_candidates(head.loss, scores, view.targets, view.mask, view.candidates)
        part = view if ranks.alone else shard_view(view, head.shard)
        if log_q is not None and not ranks.alone:
            log_q = log_q[pool_part(view.pool, head.shard)]
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
        """Return the scores [B, S] of each row's candidates, given the queries and pool vectors of this rank."""
        ranks, view = self.network.ranks, side.view
        assert view.pool is not None and view.candidates is not None
        candidates, vectors, bias = view.candidates, side.vectors, side.bias
        if not ranks.alone:
            share = ranks.share(len(candidates))
            candidates = candidates[share.start : share.stop]
            sizes = pool_sizes(view.pool, ranks.sizes(head.size))
            vectors = ranks.gather_with_gradient(vectors, sizes, summed=True)
            bias = None if bias is None else ranks.gather_with_gradient(bias, sizes, summed=True)
        # the position of padding does not matter: it is masked
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
        best, scores = self._best(sides[settings.source], self.network.head(settings.source), settings.top)
        proposed, maker = best.cpu().numpy(), self.proposals[name]
        if maker.graph is not None:
            proposed = maker.propagated(proposed, scores.cpu().numpy())
        return maker.view(batch.queries.cpu().numpy(), proposed).to(self.network.device)

    def _reached(self, name: str, head: PathHead, sides: Mapping[str, _Side], batch: Batch) -> tuple[View, Tensor]:
        """Return the candidates of a head that reads paths, and the ways to them through groups."""
        settings, rows = head.settings.candidates, batch.queries.cpu().numpy()
        assert settings is not None and self.proposals is not None
        side, source = sides[settings.source], self.network.head(settings.source)
        scores = side.queries / source.temperature() @ side.vectors.to(side.queries.dtype).T
        logs = source.log_probabilities(scores if side.bias is None else scores + side.bias)
        maker = self.proposals[name]
        proposed = logs.detach().topk(min(settings.top, logs.shape[1]), dim=1).indices.cpu().numpy()
        reached = head.reach(logs, proposed, csr_matrix(maker.targets[rows]))
        view = replace(maker, relation=None).view(rows, head.shortlisted(reached)).to(self.network.device)
        assert view.candidates is not None
        return view, head.paths(logs, reached, view.candidates)

    def _best(self, side: _Side, head: DenseHead, top: int) -> tuple[Tensor, Tensor]:
        """Return the ids [B, top] that a head scores best in this step, padded with -1, and their scores."""
        view = side.view
        if view.candidates is not None:
            scores = self._candidate_scores(side, head)
            assert view.mask is not None
            scores = scores.masked_fill(~view.mask, -torch.inf)
            best = scores.topk(min(top, scores.shape[1]), dim=1)
            ids = view.candidates.gather(1, best.indices).masked_fill(best.values == -torch.inf, -1)
            return ids, best.values
        parts = []
        vectors = side.vectors.to(side.queries.dtype)
        for queries in torch.split(side.queries / head.temperature(), _ROWS):
            scores = queries @ vectors.T
            scores = scores if side.bias is None else scores + side.bias
            parts.append(scores.topk(min(top, scores.shape[1]), dim=1))
        places, values = torch.cat([part.indices for part in parts]), torch.cat([part.values for part in parts])
        return places if view.pool is None else view.pool[places], values


@dataclass(frozen=True)
class _Side:
    """Query and label vectors of a head in a step, and the view they belong to."""

    name: str
    queries: Tensor  # [queries of this rank, d]
    vectors: Tensor  # [pool labels of this rank, d]
    bias: Tensor | None  # [pool labels of this rank]
    view: View


def _place(neighbours: Mapping[str, Tensor], name: str, total: int) -> slice:
    """Return where the points of a head are among all encoded texts, at whose end those of all heads are."""
    sizes = [len(ids) for ids in neighbours.values()]
    place = list(neighbours).index(name)
    first = total - sum(sizes[place:])
    return slice(first, first + sizes[place])


def _own_pool(view: View, head: DenseHead, network: Network) -> Tensor | None:
    """Return the labels of a view in this rank's shard, counted from its first label; None is all of them."""
    if view.pool is None or network.ranks.alone:
        return view.pool
    return view.pool[pool_part(view.pool, head.shard)] - head.shard.start


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
