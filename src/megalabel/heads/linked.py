"""Head ``linked``: a classifier whose labels are reached through weighted links from the groups of another head."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import PositiveInt, model_validator
from scipy import sparse
from torch import nn
from torch.nn.functional import logsigmoid

from megalabel.heads.dense.children import Below, Children, best_items
from megalabel.heads.dense.paths import PathHead
from megalabel.heads.free import FreeHead, FreeSettings
from megalabel.heads.head import register
from megalabel.losses import on_candidates
from megalabel.settings import NonNegative, PositiveFloat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import InitData
    from megalabel.types import View

__all__ = ["LinkedHead", "LinkedSettings"]

_LARGEST = -1e-6  # log of the largest probability that a joint score can stand for


@register
class LinkedSettings(FreeSettings):
    """Label vectors are learnt rows of a table; labels are reached through links from groups."""

    reads_paths: ClassVar[bool] = True

    kind: Literal["linked"] = "linked"  # type: ignore[assignment]
    links: PositiveInt | None = (
        None  # labels linked to a group, with learnt weights; None: those of the group, weight 1
    )
    scale: PositiveFloat = 150.0  # about how many links of a group can have a weight of 1
    shortlist: PositiveInt = 2000  # labels scored for each text
    path_weight: NonNegative = 0.05  # of the loss that asks for likely ways to the positives

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        self.require(self.links is not None, "scale", "links is null, so all links have weight 1")
        if self.links is not None and self.scale >= self.links:
            raise ValueError("scale must be below links: otherwise all links begin, and stay, at the weight 1")
        if self.candidates is None:
            raise ValueError("a head of kind linked needs candidates: {from: HEAD, top: N}, from a head over groups")
        if self.candidates.graph:
            raise ValueError("candidates.graph has no effect: a head of kind linked has links of its own")
        if self.loss is None or self.loss.kind != "bce" or self.loss.symmetric is not None:
            raise ValueError("a head of kind linked needs the loss bce, on the product of probabilities")
        if self.space is not None:
            raise ValueError("a head of kind linked scores the labels themselves, not the groups of a space")
        return self

    @property
    def has_matrix(self) -> bool:
        """Whether it learns a matrix besides its table: a projection, or the weights of links."""
        return super().has_matrix or self.links is not None

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of a free head, plus the weights of links."""
        cost = super().cost(workload)
        links = 0 if self.links is None else min(self.links, workload.labels) * workload.groups(self)
        return replace(cost, matrices=cost.matrices + links)

    def build(self, **arguments: Any) -> LinkedHead:
        """Return the head; ``relation`` [groups, labels] says which labels belong to each group."""
        return LinkedHead(self, **arguments)


class LinkedHead(FreeHead, PathHead):
    r"""Reach a label l from the groups c that another head proposes, through links with weights a.

    .. math::
        P(l) = \max_c p_c\, a_{cl} \cdot \sigma(\langle w_l, q \rangle / t + b_l), \qquad
        a_{cl} = \min(1, \beta\, e^{E_{cl}} / \sum_m e^{E_{cm}})

    p_c is what the other head makes of its scores (:class:`~megalabel.losses.TruncatedSoftmax`). The sum goes over the
    ``links`` labels that group c links to, a pattern that is fixed before the first step; E is learnt, and beta is
    ``scale``. BCE compares P(l) with the targets, over the ``shortlist`` labels with the largest max_c p_c a_cl and the
    positives. ``path_weight`` times the mean of -log max_c p_c a_cl over the positives is added. This is ELIAS (Gupta
    et al., NeurIPS 2022, section 3): a search index that is trained with the classifier, end to end.

    Without ``links``, a group links to its own labels with weight 1, as in the first stage of ELIAS. With them, the
    pattern holds the labels of the group, then those with the largest sum of p_c over their train points, as far as c
    is among the ``top`` groups of a point. A label without a link, such as a new one, has one of weight 1 to its group.

    >>> relation = sparse.csr_matrix(np.array([[1, 1, 0], [0, 0, 1]]))
    >>> settings = LinkedSettings(candidates={"from": "meta", "top": 1}, loss="bce")
    >>> head = settings.build(size=3, encoder_dim=4, relation=relation)
    >>> head.reached_from(relation).below(np.array([[0]]), np.zeros((1, 1))).items.tolist()
    [[0, 1]]
    """

    settings: LinkedSettings
    relation: sparse.csr_matrix  # [groups, labels]

    def __init__(self, settings: LinkedSettings, *, relation: sparse.csr_matrix, **more: Any) -> None:
        super().__init__(settings, **more)
        self.relation = relation
        self._known: tuple[int, _Pattern] | None = None
        if settings.links is not None:
            shape = relation.shape[0], min(settings.links, relation.shape[1])
            self.register_buffer("link_labels", torch.full(shape, -1, dtype=torch.int64))  # -1: no link
            self.link_weights = nn.Parameter(torch.zeros(shape))

    # ------------------------------------------------------------------ links

    @torch.no_grad()
    def init(self, data: InitData) -> None:
        """Set table and bias, and choose the links."""
        super().init(data)
        if self.settings.links is None:
            return
        assert self.settings.candidates is not None
        labels = self.link_labels
        chosen = _strongest(self._matches(data), self.relation, labels.shape[1])
        labels.copy_(torch.from_numpy(chosen))
        generator = torch.Generator().manual_seed(data.seed)
        self.link_weights.copy_(torch.rand(self.link_weights.shape, generator=generator))

    def _matches(self, data: InitData) -> sparse.csr_matrix:
        """Return the sum of p_c over the train points of each label, over their top groups: [groups, labels]."""
        assert self.settings.candidates is not None
        total = sparse.csr_matrix(self.relation.shape, dtype=np.float64)
        for rows, logs in data.group_probabilities(self.settings.candidates.source):
            best = logs.topk(min(self.settings.candidates.top, logs.shape[1]), dim=1)
            cells = np.repeat(np.arange(len(rows)), best.indices.shape[1]), best.indices.cpu().numpy().ravel()
            values = best.values.double().exp().cpu().numpy().ravel()
            matched = sparse.csr_matrix((values, cells), shape=(len(rows), logs.shape[1]))
            total = sparse.csr_matrix(total + matched.T @ data.targets[rows])
        return total

    def log_links(self) -> Tensor:
        """Return log a [groups, links]; -inf where there is no link."""
        weights = self.link_weights.masked_fill(self.link_labels < 0, -torch.inf)
        return (torch.log_softmax(weights, dim=1) + math.log(self.settings.scale)).clamp_max(0.0)

    def reached_from(self, relation: sparse.csr_matrix) -> Children:
        """Return the links with their current weights; labels without any are linked to their own group."""
        return self._with_weights(self._pattern if relation is self.relation else self._make_pattern(relation))

    @property
    def _pattern(self) -> _Pattern:
        """The links of a training, kept until they are chosen again."""
        version = 0 if self.settings.links is None else self.link_labels._version
        if self._known is None or self._known[0] != version:
            self._known = version, self._make_pattern(self.relation)
        return self._known[1]

    def _make_pattern(self, relation: sparse.csr_matrix) -> _Pattern:
        cells = relation.tocoo()
        if self.settings.links is None:
            return _Pattern.of(cells.row, cells.col, np.full(cells.nnz, -1), relation.shape)
        labels = self.link_labels.cpu().numpy()
        slots = np.flatnonzero(labels.ravel() >= 0)
        linked = np.zeros(relation.shape[1], dtype=np.bool_)
        linked[labels.ravel()[slots]] = True
        alone = ~linked[cells.col]
        groups = np.concatenate([slots // labels.shape[1], cells.row[alone]])
        ids = np.concatenate([labels.ravel()[slots], cells.col[alone]])
        return _Pattern.of(groups, ids, np.concatenate([slots, np.full(int(alone.sum()), -1)]), relation.shape)

    @torch.no_grad()
    def _with_weights(self, pattern: _Pattern) -> Children:
        weights = None
        if self.settings.links is not None:
            logs = self.log_links().double().cpu().numpy().ravel()
            weights = np.where(pattern.slots >= 0, logs[np.maximum(pattern.slots, 0)], 0.0)
        # a positive may lead to a group that is proposed already, so that labels are found twice
        return Children(pattern.indptr, pattern.labels, True, weights, self.settings.shortlist)

    # ------------------------------------------------------------------ a step

    @torch.no_grad()
    def reach(self, logs: Tensor, proposed: NDArray[np.int64], truth: sparse.csr_matrix) -> Below:
        """Return the labels [B, C] that a step can reach, the best way to each, and by which link.

        Args:
            logs: [B, groups] log p of all groups.
            proposed: [B, top] the best groups of each row.
            truth: [B, L] relevance; the group with the best way to each positive is taken too.
        """
        pattern = self._pattern
        children = self._with_weights(pattern)
        values = logs.double().cpu().numpy()
        rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
        slot = np.arange(truth.nnz) - truth.indptr[rows]
        forced = np.full((truth.shape[0], max(1, int(np.diff(truth.indptr).max(initial=0)))), -1, dtype=np.int64)
        forced[rows, slot] = [
            pattern.best_group(label, values[row], children.weights)
            for row, label in zip(rows.tolist(), truth.indices.tolist(), strict=True)
        ]
        groups = np.concatenate([proposed, forced], axis=1)
        totals = np.where(groups >= 0, np.take_along_axis(values, np.maximum(groups, 0), axis=1), -np.inf)
        return children.below(groups, totals)

    def shortlisted(self, reached: Below) -> NDArray[np.int64]:
        """Return the labels with the best ways."""
        return best_items(reached.items, reached.totals, self.settings.shortlist)[0]

    def paths(self, logs: Tensor, reached: Below, candidates: Tensor) -> Tensor:
        """Return log max_c p_c a_cl [B, S] of the candidates [B, S], with gradient.

        ``logs`` [B, groups] are log p of all groups. Padding, and a label that no group reaches, has 0.
        """
        labels, wanted = np.int64(self.relation.shape[1]), candidates.cpu().numpy()
        rows = np.arange(len(wanted), dtype=np.int64)[:, None]
        known = reached.items >= 0
        keys, links = np.append((rows * labels + reached.items)[known], -1), np.append(reached.links[known], 0)
        cells = rows * labels + np.maximum(wanted, 0)
        place = np.searchsorted(keys[:-1], cells)  # the end, which is no key, if all are smaller
        found = (keys[place] == cells) & (wanted >= 0)
        pattern, link = self._pattern, np.where(found, links[place], 0)
        path = logs.gather(1, torch.from_numpy(pattern.groups[link]).to(logs.device))
        if self.settings.links is not None:
            slot = pattern.slots[link]
            chosen = torch.from_numpy(np.maximum(slot, 0).ravel()).to(logs.device)
            weight = self.log_links().reshape(-1).index_select(0, chosen).view(path.shape)
            path = path + weight.masked_fill(torch.from_numpy(slot < 0).to(logs.device), 0.0)
        return path.masked_fill(torch.from_numpy(~found).to(logs.device), 0.0)

    def path_loss(self, scores: Tensor, paths: Tensor, view: View) -> Tensor:
        """Return the loss of a step, given the scores of the candidates [B, S] and the ways to them."""
        assert self.loss is not None and view.candidates is not None
        loss = on_candidates(self.loss, joint_scores(scores, paths), view.targets, view.mask, view.candidates)
        if not self.settings.path_weight or not len(view.targets.rows):
            return loss
        flat = view.targets.rows * view.targets.shape[1] + view.targets.cols
        return loss - self.settings.path_weight * paths.reshape(-1).index_select(0, flat).mean()

    def resize(self, saved: Mapping[str, Tensor]) -> None:
        """Take the number of links that was saved: labels may have been added since they were chosen."""
        if "link_labels" in saved:
            self.link_labels = torch.full_like(saved["link_labels"], -1)
            self.link_weights = nn.Parameter(torch.zeros_like(saved["link_weights"]))


def joint_scores(scores: Tensor, paths: Tensor) -> Tensor:
    r"""Return the scores whose sigmoid is :math:`e^u`, :math:`u = \text{path} + \log \sigma(\text{score})`.

    >>> joint = joint_scores(torch.tensor([0.0]), torch.tensor([0.5]).log())
    >>> round(torch.sigmoid(joint).item(), 6)
    0.25
    """
    log = (paths + logsigmoid(scores)).clamp_max(_LARGEST)
    return log - torch.log(-torch.expm1(log))


@dataclass(frozen=True)
class _Pattern:
    """Links in the order of their groups, and in that of their labels."""

    indptr: NDArray[np.int64]  # [groups + 1]
    labels: NDArray[np.int64]  # below each link
    groups: NDArray[np.int64]  # above each link
    slots: NDArray[np.int64]  # place of its weight among those learnt; -1 for weight 1
    starts: NDArray[np.int64]  # [labels + 1] places in by_label
    by_label: NDArray[np.int64]  # links in the order of their labels

    @classmethod
    def of(
        cls, groups: NDArray[Any], labels: NDArray[Any], slots: NDArray[np.int64], shape: tuple[int, int]
    ) -> _Pattern:
        """Sort links from groups to labels."""
        order = np.lexsort((labels, groups))
        groups, labels = groups[order].astype(np.int64), labels[order].astype(np.int64)
        indptr, starts = (
            np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=size))])
            for ends, size in zip((groups, labels), shape, strict=True)
        )
        return cls(indptr, labels, groups, slots[order], starts, np.argsort(labels, kind="stable"))

    def best_group(self, label: int, values: NDArray[np.float64], weights: NDArray[np.float64] | None) -> int:
        """Return the group with the best way to a label, given log p of all groups; -1 if there is none."""
        links = self.by_label[self.starts[label] : self.starts[label + 1]]
        if not len(links):
            return -1
        groups = self.groups[links]
        ways = values[groups] if weights is None else values[groups] + weights[links]
        return int(groups[np.argmax(ways)])


def _strongest(matches: sparse.csr_matrix, members: sparse.csr_matrix, count: int) -> NDArray[np.int64]:
    """Return ``count`` labels of each group [groups, count], padded with -1: its members first, then the best matches.

    >>> matches = sparse.csr_matrix(np.array([[0.5, 0.0, 0.9, 0.1]]))
    >>> _strongest(matches, sparse.csr_matrix(np.array([[0, 1, 0, 0]])), 3).tolist()
    [[1, 2, 0]]
    """
    chosen = np.full((matches.shape[0], count), -1, dtype=np.int64)
    for group in range(matches.shape[0]):
        own = np.sort(members.indices[members.indptr[group] : members.indptr[group + 1]])
        part = slice(matches.indptr[group], matches.indptr[group + 1])
        labels, values = matches.indices[part], matches.data[part]
        order = np.lexsort((labels, -values))
        others = labels[order][~np.isin(labels[order], own)]
        both = np.concatenate([own, others])[:count]
        chosen[group, : len(both)] = both
    return chosen
