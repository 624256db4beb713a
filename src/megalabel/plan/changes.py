"""What to change if a training does not fit: every suggested change is planned itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from megalabel.errors import SettingError
from megalabel.network.network import ENCODER
from megalabel.plan.memory import largest_stage
from megalabel.plan.numbers import show_bytes
from megalabel.recipes.load_recipe import make_recipe
from megalabel.recipes.schema import switch_labels

if TYPE_CHECKING:
    from megalabel.plan.machine import Machine
    from megalabel.plan.memory import Memory
    from megalabel.plan.workload import Workload
    from megalabel.recipes.schema import Recipe

__all__ = ["Change", "change_recipe", "changes_that_help", "dim_settings", "fits", "remedy"]

_HALVINGS = 12
_WORTHWHILE = 0.95  # a change must bring memory down to this share to be suggested
_MAX_DEVICES = 4_096
_UNIFORM = 8_192  # labels drawn per batch in place of all

Option: TypeAlias = "tuple[str, Workload]"  # what to type, and the workload with it
Ladder: TypeAlias = "Iterator[Option]"  # ever stronger


@dataclass(frozen=True)
class Change:
    """A change, or several together, with the memory they lead to."""

    options: str  # what to type
    device_bytes: float
    host_bytes: float
    enough: bool


def fits(memory: Memory, machine: Machine) -> bool:
    """Return whether it fits; what is not known of the machine does not count."""
    device, host = (memory.peak(host=side)[1] for side in (False, True))
    if machine.memory is not None and device > machine.memory:
        return False
    return not machine.gpu or machine.host_memory is None or machine.devices * host <= machine.host_memory


def changes_that_help(load: Workload, machine: Machine, *, more_devices: bool = True) -> list[Change]:
    """Return the mildest form of every change that is enough alone; if none is, those to make together."""
    ladders = [_chunk, _projection, _tables, _batch, _refit, _pool, _dim, *([_devices] if more_devices else [])]

    def change(options: str, changed: Workload) -> Change:
        memory = largest_stage(changed)[1]
        enough = fits(memory, replace(machine, devices=changed.devices))
        return Change(options, memory.peak()[1], memory.peak(host=True)[1], enough)

    def first_enough(ladder: Ladder) -> Option | None:
        return next((step for step in ladder if change(*step).enough), None)

    def peak(changed: Workload) -> float:
        return largest_stage(changed)[1].peak()[1]

    alone = [change(*step) for ladder in ladders if (step := first_enough(ladder(load))) is not None]
    if alone:
        return alone
    options, current = "", load
    for ladder in ladders:
        step = first_enough(ladder(current))
        chosen = step or min(ladder(current), key=lambda step: peak(step[1]), default=None)
        if chosen is None or peak(chosen[1]) > _WORTHWHILE * peak(current):
            continue
        options, current = f"{options} {chosen[0]}".strip(), chosen[1]
        if step is not None:
            break
    return [change(options, current)] if options else []


def remedy(changes: Sequence[Change]) -> str:
    """Return in one line what to do."""
    if not changes:
        return "no known change is enough: use a smaller set or a larger machine"
    first = changes[0]
    rest = "" if first.enough else ", which is still too much"
    return f"{first.options} takes it to {show_bytes(first.device_bytes)}{rest}"


def change_recipe(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Return the recipe with some keys changed, such as ``training.epochs``."""
    document = recipe.model_dump(mode="json", by_alias=True)
    for key, value in settings.items():
        *path, last = key.split(".")
        if path[:1] == ["encoder"]:
            path[:1] = ["encoders", ENCODER]
        node = document
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
        if key == "batching.labels":
            document["batching"] = switch_labels(node, value)
    return make_recipe(document)


def _set(load: Workload, settings: Mapping[str, Any]) -> Ladder:
    """Yield the workload with these settings; nothing if the recipe does not allow them."""
    options = " ".join(f"--set {key}={_yaml(value)}" for key, value in settings.items())
    try:
        recipe = change_recipe(load.recipe, settings)
    except SettingError:
        return
    yield options, replace(load, recipe=recipe)


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "'{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}'"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _halved(start: int, smallest: int, make: Callable[[int], Ladder]) -> Ladder:
    value = start
    for _ in range(_HALVINGS):
        value //= 2
        if value < smallest:
            return
        yield from make(value)


def _chunk(load: Workload) -> Ladder:
    texts = max(side.texts for encoder in load.encoders for side in load.sides(encoder))
    start = min(load.chunk, texts)
    yield from _halved(2 * (start // 2), 32, lambda value: _set(load, {"training.chunk_size": value}))


def _batch(load: Workload) -> Ladder:
    yield from _halved(load.batch, 64, lambda value: _set(load, {"batching.batch_size": value}))


def _projection(load: Workload) -> Ladder:
    """Let the only encoder, a transformer, end at the size of the heads, so that encoded labels take no more."""
    dims = {head.dim for head in load.heads}
    (encoder, *others) = load.encoders
    apart = all(head.settings.projection in ("linear", "tanh") for head in load.heads)
    if others or encoder.settings.kind != "transformer" or not apart or max(dims) >= encoder.cost.dim:
        return
    shorter = {f"{_key(encoder.name)}.options.projection": max(dims)}
    yield from _set(load, shorter)
    if len(dims) == 1:
        none = {"projection": "none", "dim": None, "dropout": 0.0}  # the last two have no effect without a projection
        unprojected = {
            f"heads.{head.name}.{key}": value
            for head in load.heads
            for key, value in none.items()
            if getattr(head.settings, key) != value
        }
        yield from _set(load, shorter | unprojected | _without_projections(load, none))


def _without_projections(load: Workload, none: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the optimiser of heads becomes where none of them has a projection: no key without effect."""
    optimiser, heads = load.recipe.training.heads, [head.settings.model_copy(update=none) for head in load.heads]
    if optimiser is None or any(head.has_matrix for head in heads):
        return {}
    if not any(head.has_weights for head in heads):
        return {"training.heads": None}
    return {"training.heads.weight_decay": 0.0} if optimiser.weight_decay else {}


def _tables(load: Workload) -> Ladder:
    tables = load.recipe.training.tables
    if (tables is None or tables.kind != "row_adagrad") and any(head.cost.table for head in load.heads):
        yield from _set(load, {"training.tables": {"kind": "row_adagrad", "lr": 0.05}})


def _refit(load: Workload) -> Ladder:
    if load.recipe.training.refit:
        yield from _set(load, {"training.refit": False})


def _pool(load: Workload) -> Ladder:
    if load.all_labels and load.labels > _UNIFORM:
        names = {"labels": "pool", "positives": "all", "negatives.uniform": _UNIFORM}
        yield from _set(load, {f"batching.{name}": value for name, value in names.items()})


def _dim(load: Workload) -> Ladder:
    largest = max(head.dim for head in load.heads)
    yield from _halved(largest, 16, lambda value: _set(load, dim_settings(load.recipe, value)))


def _devices(load: Workload) -> Ladder:
    count = load.devices
    while count < _MAX_DEVICES:
        count *= 2
        yield f"--devices {count}", replace(load, devices=count)


def _key(encoder: str) -> str:
    """Return the key of an encoder in a recipe."""
    return encoder if encoder == ENCODER else f"encoders.{encoder}"


def dim_settings(recipe: Recipe, dim: int) -> dict[str, Any]:
    """Return the keys that give all label vectors this size."""
    heads = recipe.dense_heads
    given = {f"heads.{name}.dim": dim for name, head in heads.items() if head.dim is not None}
    projected = {f"heads.{name}.dim": dim for name, head in heads.items() if head.projection in ("linear", "tanh")}
    if len(projected) == len(heads) and all(part.kind == "transformer" for part in recipe.encoders.values()):
        return projected
    sizes = {
        f"{_key(name)}.options.{option}": value
        for name, part in recipe.encoders.items()
        for option, value in part.sized(dim).items()
    }
    return {**sizes, **given} if recipe.encoder.kind != "transformer" else {**sizes, **projected, **given}
