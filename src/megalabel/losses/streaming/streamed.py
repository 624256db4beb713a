"""Compute any loss over any number of labels without the matrix of scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.autograd.function import once_differentiable

from megalabel.errors import DataError, SettingError
from megalabel.losses.base import check_mask, count_cells, divisor, find_positives
from megalabel.losses.streaming.blocks import Plan, Problem
from megalabel.losses.streaming.engine import Needs, Outcome, run
from megalabel.losses.sum import Sum
from megalabel.losses.symmetric import Symmetric, turn
from megalabel.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from megalabel.types import Loss, Positives, StreamedLoss, Targets

ANCHORS = 1024  # labels that are anchors at the same time in a symmetric loss
HALVES = (torch.float16, torch.bfloat16)


def streamed(
    loss: Loss,
    queries: Tensor,
    labels: Tensor,
    targets: Tensor | Targets,
    *,
    temperature: float | Tensor = 1.0,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    log_q: Tensor | None = None,
    block: int | None = None,
    budget: int | None = None,
    skip: float | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    r"""Compute ``loss(queries @ labels.T / temperature + bias, targets, mask)`` without that matrix.

    Returns the same value as the plain form, and the same gradients of queries, labels,
    temperature and bias, in O((B + P) d + B block) memory. The gradients are computed together
    with the value, in as few matrix products as possible, and kept for one backward pass.
    Second derivatives are not supported.

    ====================================================  ==========================  =========
    loss                                                  passes over the labels      products
    ====================================================  ==========================  =========
    BCE, squared hinge, probabilistic contrastive         1                           3
    softmax, SupCon, decoupled softmax                    2                           4
    triplet, probabilistic contrastive with k             1, then a few cells         1
    soft top-k                                            2 usually, then 1           5
    symmetric                                             + anchors x queries once
    sum                                                   the maximum of its parts
    ====================================================  ==========================  =========

    A product takes 2 B P d operations. Blocks whose scores fit the budget are computed once
    and stored, which saves one product in each further pass.

    Args:
        loss: a loss of this package, or any object with the protocol of
            :class:`megalabel.types.StreamedLoss`; its reduction is "mean", "sum" or "cells".
        queries: [B, d].
        labels: [P, d].
        targets: dense [B, P] or :class:`megalabel.types.Targets`.
        temperature: a number, or a scalar tensor that may require a gradient.
        bias: [P] or a scalar tensor, added to the scores; may require a gradient.
        mask: [B, P] bool, or what broadcasts to it; False removes the cell.
        log_q: [P], subtracted from the scores of negatives.
        block: columns per block; by default as many as fit the processor's cache.
        budget: bytes of working memory beyond inputs and gradients, 160 MiB by default; blocks
            are never narrower than 64 columns.
        skip: skip the gradient products of a block if no cell of the row losses has a
            gradient above this. The gradient of a query's row loss is then off by at most
            ``skip * P * max |label| / temperature``. By default no block is skipped.
        group: process group over which the labels are sharded. Every rank passes all
            queries, its own labels, bias and columns of the targets; every rank gets the
            whole value, the whole gradient of queries and temperature, and the gradient
            of its own labels and bias.

    Returns:
        A scalar in the type of the inputs, float32 for half precision. Under autocast
        the products run in half precision and the sums in float32.

    Example:
        >>> import torch
        >>> from megalabel.losses import DecoupledSoftmax, streamed
        >>> queries, labels = torch.randn(4, 8), torch.randn(1000, 8, requires_grad=True)
        >>> targets = torch.zeros(4, 1000); targets[:, :2] = 1
        >>> value = streamed(DecoupledSoftmax(), queries, labels, targets, temperature=0.5, block=100)
        >>> torch.allclose(value, DecoupledSoftmax()(queries @ labels.T / 0.5, targets))
        True
        >>> value.backward(); labels.grad.shape
        torch.Size([1000, 8])
    """
    shape = _check(queries, labels, bias, log_q, block, budget)
    terms = _terms(loss)
    if log_q is not None:
        for term in terms:
            getattr(term.loss, "check_log_q", lambda: None)()
    kind = _kind(queries, labels)
    like = queries.new_empty(0, dtype=torch.float32 if kind in HALVES else kind)
    mask = None if mask is None else check_mask(mask, shape)
    positives = _by_column(find_positives(targets, shape, like, mask))
    plan = Plan.make(shape[0], like.element_size(), block, budget)
    grad = torch.is_grad_enabled()
    job = _Job(terms, positives, mask, log_q, kind, plan, skip, Ranks.of_group(group), grad)
    scale = temperature if isinstance(temperature, torch.Tensor) else queries.new_tensor(temperature, dtype=like.dtype)
    return cast("Tensor", _Streamed.apply(queries, labels, scale, bias, job))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Term:
    """One row loss of a combination; ``turned`` when labels are its anchors."""

    weight: float
    loss: StreamedLoss
    turned: bool


def _terms(loss: Loss, weight: float = 1.0, turned: bool = False) -> list[_Term]:
    """Split sums and symmetric losses into row losses."""
    if isinstance(loss, Sum):
        return [term for share, part in loss.parts() for term in _terms(part, weight * share, turned)]
    if isinstance(loss, Symmetric):
        if turned:
            raise SettingError("a symmetric loss holds another one", remedy="wrap the inner loss once")
        return _terms(loss.loss, weight * loss.weight) + _terms(loss.loss, weight * (1 - loss.weight), True)
    if not hasattr(loss, "begin"):
        raise SettingError(
            f"{type(loss).__name__} has no streamed form",
            remedy="call it on scores, or give it begin() as in megalabel.types.StreamedLoss",
        )
    streamable = cast("StreamedLoss", loss)
    if streamable.reduction not in ("mean", "sum", "cells"):
        raise SettingError(
            f"streamed gives one number, not reduction {streamable.reduction!r}", remedy="use mean, sum or cells"
        )
    return [_Term(weight, streamable, turned)] if weight else []


@dataclass(frozen=True)
class _Job:
    """The arguments of a call that carry no gradient."""

    terms: list[_Term]
    positives: Positives
    mask: Tensor | None
    log_q: Tensor | None
    kind: torch.dtype
    plan: Plan
    skip: float | None
    ranks: Ranks
    grad: bool

    def run(
        self, queries: Tensor, labels: Tensor, temperature: Tensor, bias: Tensor | None, needs_grad: tuple[bool, ...]
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """Return the value and the gradients of the four inputs."""
        sums = torch.float32 if self.kind in HALVES else self.kind
        divided = queries.to(sums) / temperature.to(sums)
        needs = Needs(needs_grad[0] or needs_grad[2], needs_grad[1], needs_grad[3])
        if not self.grad:
            needs = Needs(False, False, False)
        full = None if bias is None else bias.to(sums).expand(labels.shape[0])
        problem = Problem(divided, labels, full, self.log_q, self.mask, self.positives, self.kind)
        rowwise = _weighted(self, False, queries.shape[0], self.mask, self.positives.shape)
        outcome = run(rowwise, problem, needs, self.plan, self.ranks, self.skip)
        value, d_queries = outcome.value, outcome.queries
        if any(term.turned for term in self.terms):
            turned = _run_turned(self, problem, needs, outcome)
            value = value + self.ranks.sum(turned)
        d_temperature = None
        if needs.queries and d_queries is not None:
            d_queries = self.ranks.sum(d_queries)
            d_temperature = -(d_queries * divided).sum() / temperature.to(sums)
            d_queries = d_queries.div_(temperature.to(sums)).to(queries.dtype)
        d_bias = None if outcome.bias is None or bias is None else _shrink(outcome.bias, bias, self.ranks)
        d_scale = None if d_temperature is None else d_temperature.to(temperature.dtype).reshape(temperature.shape)
        return value, (d_queries, outcome.labels, d_scale, d_bias)


def _run_turned(job: _Job, problem: Problem, needs: Needs, outcome: Outcome) -> Tensor:
    """Run the terms whose anchors are labels, a few anchors at a time, and add to the gradients of ``outcome``.

    Each anchor sees all queries, so its row is complete on the rank that holds the label. A
    bias per label becomes one more coordinate of its vector, multiplied by 1.
    """
    anchors, targets = turn(problem.positives)
    total = job.ranks.sum(torch.tensor(float(anchors.numel()), device=anchors.device))
    queries = problem.queries
    used = None if problem.mask is None else problem.mask.index_select(1, anchors)
    terms = _weighted(job, True, int(total), used, (queries.shape[0], anchors.numel()))
    if problem.bias is not None:
        queries = torch.cat([queries, torch.ones_like(queries[:, :1])], 1)
    dim = problem.queries.shape[1]
    sides = Needs(needs.labels or needs.bias, needs.queries, False)
    value = problem.queries.new_zeros(())
    for first in range(0, anchors.numel(), ANCHORS):
        chunk = anchors[first : first + ANCHORS]
        labels = problem.labels.index_select(0, chunk).to(queries.dtype)
        if problem.bias is not None:
            labels = torch.cat([labels, problem.bias.index_select(0, chunk)[:, None]], 1)
        mask = None if problem.mask is None else problem.mask.index_select(1, chunk).T
        cells = (targets.rows >= first) & (targets.rows < first + ANCHORS)
        part = replace(
            job.positives,
            rows=targets.rows[cells] - first, cols=targets.cols[cells], values=targets.values[cells],
            shape=(chunk.numel(), queries.shape[0]),
        )  # fmt: skip
        turned = Problem(labels, queries, None, None, mask, _by_column(part), job.kind)
        plan = Plan.make(chunk.numel(), queries.element_size(), None, 0 if job.plan.keep == 0 else None)
        part_outcome = run(terms, turned, sides, plan, ALONE, job.skip)
        value = value + part_outcome.value
        if part_outcome.queries is not None and outcome.labels is not None:
            outcome.labels.index_add_(0, chunk, part_outcome.queries[:, :dim].to(outcome.labels.dtype))
        if part_outcome.queries is not None and outcome.bias is not None:
            outcome.bias.index_add_(0, chunk, part_outcome.queries[:, dim])
        if part_outcome.labels is not None and outcome.queries is not None:
            outcome.queries.add_(part_outcome.labels[:, :dim])
    return value


class _Streamed(torch.autograd.Function):
    """Computes the value and its gradients in forward; backward returns the stored gradients, once."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, labels: Tensor, temperature: Tensor, bias: Tensor | None, job: _Job
    ) -> Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            value, ctx.gradients = job.run(queries, labels, temperature, bias, ctx.needs_input_grad)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("streamed keeps its gradients for one backward pass only; call it again for another")
        gradients, ctx.gradients = ctx.gradients, None
        if gradient.device.type != "cpu" or gradient.item() != 1.0:
            gradients = tuple(None if part is None else part.mul_(gradient.to(part.dtype)) for part in gradients)
        return (*gradients, None)


def _weighted(
    job: _Job, turned: bool, rows: int, mask: Tensor | None, shape: tuple[int, int]
) -> list[tuple[float, StreamedLoss]]:
    """Return the row losses of one direction, each with its weight times its reduction; ``shape`` is of this rank."""
    terms = [term for term in job.terms if term.turned is turned]
    cells = 0
    if any(term.loss.reduction == "cells" for term in terms):
        local = torch.tensor(float(count_cells(shape, mask)), dtype=torch.float64, device=job.positives.rows.device)
        cells = int(job.ranks.sum(local))
    return [(term.weight / divisor(term.loss.reduction, rows, cells), term.loss) for term in terms]


def _shrink(gradient: Tensor, bias: Tensor, ranks: Ranks) -> Tensor:
    """Reduce the gradient of the bias per label [P] to the shape of the bias."""
    if bias.numel() == 1 and gradient.numel() != 1:
        gradient = ranks.sum(gradient.sum())
    return gradient.reshape(bias.shape).to(bias.dtype)


def _by_column(positives: Positives) -> Positives:
    order = torch.argsort(positives.cols * positives.shape[0] + positives.rows)
    moved = {name: getattr(positives, name)[order] for name in ("rows", "cols", "values", "scores")}
    return replace(positives, **moved)


def _kind(queries: Tensor, labels: Tensor) -> torch.dtype:
    """Return the type of the products."""
    device = queries.device.type
    if torch.is_autocast_enabled(device) and queries.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return torch.promote_types(queries.dtype, labels.dtype)


def _check(
    queries: Tensor, labels: Tensor, bias: Tensor | None, log_q: Tensor | None, block: int | None, budget: int | None
) -> tuple[int, int]:
    if queries.dim() != 2 or labels.dim() != 2 or queries.shape[1] != labels.shape[1]:
        raise DataError(
            f"queries {tuple(queries.shape)} and labels {tuple(labels.shape)} do not fit",
            remedy="pass [B, d] and [P, d]",
        )
    count = labels.shape[0]
    for name, tensor in (("bias", bias), ("log_q", log_q)):
        if tensor is not None and tensor.shape != (count,) and (name != "bias" or tensor.numel() != 1):
            raise DataError(f"{name} has shape {tuple(tensor.shape)}, expected ({count},)")
    if block is not None and block < 1:
        raise SettingError(f"block is {block}", remedy="choose 1 column or more, or None")
    if budget is not None and budget < 0:
        raise SettingError(f"budget is {budget}", remedy="choose a number of bytes, or None")
    return queries.shape[0], count
