"""What to change where a training does not fit: each change is planned, none is guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from megalabel.plan.case import Case
from megalabel.plan.numbers import show_bytes
from megalabel.recipes.schema import Recipe, switch_labels

if TYPE_CHECKING:
    from megalabel.plan.machine import Machine
    from megalabel.plan.result import Memory

__all__ = ["Change", "changed", "changes_that_help", "dim_settings", "fits", "remedy"]

_HALVINGS = 12
_LEAST = 0.95  # a change must bring memory down to this share to be worth telling
_DEVICES = 4_096
_UNIFORM = 8_192  # labels drawn for a batch in place of all

Ladder = Iterator[tuple[str, Case]]  # what to type, and the case with it, ever stronger
Measure: TypeAlias = "Callable[[Case], Memory]"


@dataclass(frozen=True)
class Change:
    """A change, or several together, with what they lead to."""

    options: str  # what to type
    device_bytes: float
    host_bytes: float
    enough: bool


def fits(found: Memory, machine: Machine) -> bool:
    """Tell whether it fits; what is not known of the machine is no obstacle."""
    device, host = (found.peak(host=side)[1] for side in (False, True))
    if machine.memory is not None and device > machine.memory:
        return False
    return not machine.gpu or machine.host_memory is None or machine.devices * host <= machine.host_memory


def changes_that_help(case: Case, machine: Machine, measure: Measure, *, more_devices: bool = True) -> list[Change]:
    """Return the mildest form of every change that is enough alone; where none is, those to make together.

    ``measure`` tells the memory of a case. More devices are among the changes if they can be had.
    """
    ladders = [_chunk, _projection, _tables, _batch, _refit, _pool, _dim, *([_devices] if more_devices else [])]

    def change(options: str, changed: Case) -> Change:
        found = measure(changed)
        enough = fits(found, replace(machine, devices=changed.devices))
        return Change(options, found.peak()[1], found.peak(host=True)[1], enough)

    def first_enough(ladder: Ladder) -> tuple[str, Case] | None:
        return next((step for step in ladder if change(*step).enough), None)

    alone = [change(*step) for ladder in ladders if (step := first_enough(ladder(case))) is not None]
    if alone:
        return alone
    told, now = "", case
    for ladder in ladders:
        step = first_enough(ladder(now))
        strongest = min(ladder(now), key=lambda step: measure(step[1]).peak()[1], default=None)
        chosen = step or strongest
        if chosen is None or measure(chosen[1]).peak()[1] > _LEAST * measure(now).peak()[1]:
            continue
        told, now = f"{told} {chosen[0]}".strip(), chosen[1]
        if step is not None:
            break
    return [change(told, now)] if told else []


def remedy(changes: Sequence[Change]) -> str:
    """Return in one line what to do."""
    if not changes:
        return "no change known here is enough: take a smaller set, or a larger machine"
    first = changes[0]
    rest = "" if first.enough else ", which is still too much"
    return f"{first.options} takes it to {show_bytes(first.device_bytes)}{rest}"


def changed(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Return the recipe with some keys changed, such as ``training.epochs``."""
    document = recipe.model_dump(mode="json", by_alias=True)
    for key, value in settings.items():
        *path, last = key.split(".")
        if path[:1] == ["encoder"]:
            path[:1] = ["encoders", next(iter(recipe.encoders))]
        node = document
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
        if key == "batching.labels":
            document["batching"] = switch_labels(node, value)
    return Recipe.model_validate(document)


def _set(case: Case, settings: Mapping[str, Any]) -> tuple[str, Case]:
    options = " ".join(f"--set {key}={_yaml(value)}" for key, value in settings.items())
    return options, replace(case, recipe=changed(case.recipe, settings))


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "'{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}'"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _halved(start: int, least: int, make: Callable[[int], tuple[str, Case]]) -> Ladder:
    value = start
    for _ in range(_HALVINGS):
        value //= 2
        if value < least:
            return
        yield make(value)


def _chunk(case: Case) -> Ladder:
    start = min(case.chunk, max(case.own_batch, case.own_pool if case.reads else 0))
    yield from _halved(2 * (start // 2), 32, lambda value: _set(case, {"training.chunk_size": value}))


def _batch(case: Case) -> Ladder:
    yield from _halved(case.batch, 64, lambda value: _set(case, {"batching.batch_size": value}))


def _projection(case: Case) -> Ladder:
    """Let a transformer itself end at the size of the heads, so that encoded labels take no more."""
    dims = {head.dim for head in case.heads}
    apart = all(head.settings.projection in ("linear", "tanh") for head in case.heads)
    if case.recipe.encoder.kind == "transformer" and apart and max(dims) < case.encoder.dim:
        shorter = {"encoder.options.projection": max(dims)}
        yield _set(case, shorter)
        if len(dims) == 1:
            none = {"projection": "none", "dim": None, "dropout": 0.0}
            changed = {
                f"heads.{head.name}.{key}": value
                for head in case.heads
                for key, value in none.items()
                if getattr(head.settings, key) != value
            }
            yield _set(case, shorter | changed)


def _tables(case: Case) -> Ladder:
    training = case.recipe.training
    if (training.tables is None or training.tables.kind != "row_adagrad") and any(head.free for head in case.heads):
        yield _set(case, {"training.tables": {"kind": "row_adagrad", "lr": 0.05}})


def _refit(case: Case) -> Ladder:
    if case.recipe.training.refit:
        yield _set(case, {"training.refit": False})


def _pool(case: Case) -> Ladder:
    if case.all_labels and case.sizes.labels > _UNIFORM:
        yield _set(
            case, {"batching.labels": "pool", "batching.positives": "all", "batching.negatives.uniform": _UNIFORM}
        )


def _dim(case: Case) -> Ladder:
    def make(value: int) -> tuple[str, Case]:
        return _set(case, dim_settings(case.recipe, value))

    yield from _halved(max(head.dim for head in case.heads), 16, make)


def dim_settings(recipe: Recipe, dim: int) -> dict[str, Any]:
    """Return the keys that give all label vectors this size."""
    if recipe.encoder.kind != "transformer":
        own = {f"heads.{name}.dim": dim for name, head in recipe.dense_heads.items() if head.dim is not None}
        return {"encoder.options.dim": dim, **own}
    apart = {
        f"heads.{name}.dim": dim for name, head in recipe.dense_heads.items() if head.projection in ("linear", "tanh")
    }
    if len(apart) == len(recipe.dense_heads):
        return apart
    own = {f"heads.{name}.dim": dim for name, head in recipe.dense_heads.items() if head.dim is not None}
    return {"encoder.options.projection": dim, **apart, **own}


def _devices(case: Case) -> Ladder:
    count = case.devices
    while count < _DEVICES:
        count *= 2
        yield f"--devices {count}", replace(case, devices=count)
