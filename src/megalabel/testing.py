"""Contract checks that anyone can run on a part of their own; each raises AssertionError with one clear line.

Example:
    >>> from megalabel.losses import DecoupledSoftmax
    >>> from megalabel.testing import check_loss
    >>> check_loss(DecoupledSoftmax())
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from megalabel.losses import streamed
from megalabel.losses.sum import Sum
from megalabel.losses.symmetric import Symmetric
from megalabel.types import Targets

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Loss

__all__ = ["check_loss"]

ROWS, COLUMNS, DIM = 4, 9, 5


def check_loss(loss: Loss, seed: int = 0) -> None:
    """Check that a loss keeps the contract of :class:`megalabel.types.Loss`.

    The loss does not change its inputs. Dense and sparse targets agree. The gradient is that of
    the value (float64, finite differences), reaches the first and the last label and has the
    right sign. Masking a column equals removing it, and the order of columns does not matter.
    Scores of 1e4, half precision, rows without positives and rows without negatives give finite
    numbers. The rows of reduction "none" add up to "sum". If the loss has a streamed form, it
    equals the plain form for blocks of 1, 7, P and P + 1 columns, with a mask, with and without
    stored blocks.

    Two attributes make further claims, which are checked too: ``raises_positives`` (a step along
    the negative gradient never lowers a positive) and ``lowers_negatives`` (it never raises a
    negative).

    Args:
        loss: the loss to check; most checks use scores from -1 to 1, like cosines.
        seed: seed of the random scores and targets.

    Raises:
        AssertionError: names the loss and what is wrong.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(ROWS, COLUMNS, generator=generator, dtype=torch.float64) * 2 - 1
    targets = _targets(generator)
    for check in (
        _check_inputs, _check_gradient, _check_ends, _check_direction, _check_order, _check_mask, _check_sizes,
        _check_precision, _check_empty, _check_reduction,
    ):  # fmt: skip
        check(loss, scores.clone(), targets.clone())
    if _streams(loss):
        _check_streamed(loss, generator, targets)


def _targets(generator: torch.Generator) -> Tensor:
    """One positive, several, soft ones; the first and the last label are positive somewhere and negative elsewhere."""
    targets = torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    targets[0, 0] = 1
    targets[1, [2, 5, COLUMNS - 1]] = 1
    targets[2, [1, 4]] = torch.rand(2, generator=generator, dtype=torch.float64) * 0.8 + 0.1
    targets[3, [0, 3]] = 1
    return targets


def _expect(ok: bool, loss: Loss, what: str) -> None:
    if not ok:
        raise AssertionError(f"{loss!r}: {what}")


def _value(loss: Loss, *inputs: Tensor | Targets | None) -> Tensor:
    return loss(*inputs).sum()  # type: ignore[arg-type]


def _gradient(loss: Loss, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = scores.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_value(loss, scores, targets, mask), scores)
    return gradient


def _close(left: Tensor, right: Tensor, tolerance: float = 1e-9) -> bool:
    return bool(torch.allclose(left, right, rtol=tolerance, atol=tolerance))


def _check_inputs(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[0, 1] = False
    inputs = scores.clone().requires_grad_(), targets.clone(), mask.clone()
    _value(loss, *inputs).backward()  # type: ignore[no-untyped-call]
    for name, before, after in zip(("scores", "targets", "mask"), (scores, targets, mask), inputs, strict=True):
        _expect(torch.equal(before, after.detach()), loss, f"it changed its {name}")
    sparse = _value(loss, scores, Targets.from_dense(targets), mask)
    _expect(_close(sparse, _value(loss, scores, targets, mask)), loss, "dense and sparse targets give different values")


def _check_gradient(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    try:
        torch.autograd.gradcheck(lambda s: _value(loss, s, targets), scores.requires_grad_())
    except RuntimeError as error:
        raise AssertionError(f"{loss!r}: the gradient is not that of the value: {error}") from error


def _check_ends(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    gradient = _gradient(loss, scores, targets)
    for name, column in (("first", 0), ("last", COLUMNS - 1)):
        # a loss on the hardest negatives may pass over a cell, but not over a column that is positive somewhere
        _expect(bool((gradient[:, column] != 0).any()), loss, f"the {name} label gets no gradient")


def _check_direction(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    lone = _gradient(loss, scores[:1], targets[:1])[0]
    _expect(bool(lone[0] < 0), loss, "the gradient pushes a lone positive down")
    _expect(bool(lone[1:].sum() > 0), loss, "the gradient pulls negatives up")
    lower = _value(loss, scores - 1e-4 * _gradient(loss, scores, targets), targets)
    _expect(
        bool(lower < _value(loss, scores, targets)), loss, "a small step along the negative gradient does not lower it"
    )
    hard = (targets > 0).to(scores)
    gradient = _gradient(loss, scores, hard)
    if getattr(loss, "raises_positives", False):
        _expect(bool((gradient[hard > 0] <= 0).all()), loss, "it claims to raise positives, and lowers one")
    if getattr(loss, "lowers_negatives", False):
        _expect(bool((gradient[hard == 0] >= 0).all()), loss, "it claims to lower negatives, and raises one")


def _check_mask(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    for column in (1, 6, COLUMNS - 1):
        mask = torch.ones_like(scores, dtype=torch.bool)
        mask[:, column] = False
        rest = [place for place in range(COLUMNS) if place != column]
        masked, removed = _value(loss, scores, targets, mask), _value(loss, scores[:, rest], targets[:, rest])
        _expect(
            _close(masked, removed), loss, f"a masked column is not the same as a removed one: {masked} and {removed}"
        )
        gradient = _gradient(loss, scores, targets, mask)
        _expect(not gradient[:, column].any(), loss, "a masked cell gets gradient")
        _expect(
            _close(gradient[:, rest], _gradient(loss, scores[:, rest], targets[:, rest])),
            loss,
            "masking moves gradients",
        )


def _check_order(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    order = torch.arange(COLUMNS - 1, -1, -1)
    same = _close(_value(loss, scores[:, order], targets[:, order]), _value(loss, scores, targets))
    _expect(same, loss, "the order of columns matters")


def _check_sizes(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    for dtype in (torch.float64, torch.float32):
        big = (scores * 1e4).to(dtype)
        for size in (big, -big, torch.full_like(big, 1e4), torch.full_like(big, -1e4)):
            _finite(loss, size, targets, f"scores of 1e4 in {dtype}")


def _check_precision(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    exact = _value(loss, scores, targets)
    for dtype in (torch.bfloat16, torch.float16):
        _finite(loss, scores.to(dtype), targets, f"{dtype}")
        rounded = _value(loss, scores.to(dtype), targets).to(exact.dtype)
        _expect(_close(rounded, exact, 0.05), loss, f"{dtype} gives {rounded.item():.4g}, float64 {exact.item():.4g}")


def _check_empty(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    none, every = targets.clone(), targets.clone()
    none[0] = 0
    every[0] = 1
    _finite(loss, scores, none, "a row without positives")
    _finite(loss, scores, every, "a row of positives only")
    _finite(loss, scores, torch.zeros_like(targets), "no positive at all")
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[0] = False
    _finite(loss, scores, targets, "a row masked from end to end", mask)


def _finite(loss: Loss, scores: Tensor, targets: Tensor, what: str, mask: Tensor | None = None) -> None:
    _expect(bool(_value(loss, scores, targets, mask).isfinite()), loss, f"{what}: the value is not finite")
    _expect(bool(_gradient(loss, scores, targets, mask).isfinite().all()), loss, f"{what}: the gradient is not finite")


def _check_reduction(loss: Loss, scores: Tensor, targets: Tensor) -> None:
    if not dataclasses.is_dataclass(loss) or not hasattr(loss, "reduction"):
        return
    rows, total, mean = (dataclasses.replace(loss, reduction=how)(scores, targets) for how in ("none", "sum", "mean"))
    _expect(rows.shape == (ROWS,), loss, f'reduction "none" has shape {tuple(rows.shape)}, not one value per row')
    _expect(_close(rows.sum(), total), loss, 'reduction "none" does not add up to "sum"')
    _expect(_close(rows.mean(), mean), loss, '"mean" is not the mean over rows')


def _streams(loss: Loss) -> bool:
    if isinstance(loss, Symmetric):
        return _streams(loss.loss)
    if isinstance(loss, Sum):
        return all(_streams(part) for part in loss.losses)
    return hasattr(loss, "begin") and getattr(loss, "reduction", "none") != "none"


def _check_streamed(loss: Loss, generator: torch.Generator, targets: Tensor) -> None:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    queries, labels = (torch.nn.functional.normalize(draw(count, DIM)) for count in (ROWS, COLUMNS))
    temperature, bias = torch.tensor(0.9, dtype=torch.float64), draw(COLUMNS) * 0.05
    mask = torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    mask[1, 3] = mask[2, 4] = False
    inputs = queries, labels, temperature, bias

    def run(call: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        value = call(*leaves)
        return [value.detach(), *torch.autograd.grad(value, leaves)]

    plain = run(lambda q, x, t, b: loss(q @ x.T / t + b, targets, mask))
    for block in (1, 7, COLUMNS, COLUMNS + 1):
        for budget in (0, 1 << 20):

            def call(q: Tensor, x: Tensor, t: Tensor, b: Tensor, block: int = block, budget: int = budget) -> Tensor:
                return streamed(loss, q, x, targets, temperature=t, bias=b, mask=mask, block=block, budget=budget)

            names = (
                "value",
                "gradient of queries",
                "gradient of labels",
                "gradient of temperature",
                "gradient of bias",
            )
            for name, left, right in zip(names, run(call), plain, strict=True):
                what = f"streamed in blocks of {block}, the {name} is not that of the plain form"
                _expect(_close(left, right, 1e-10), loss, what)
