"""The published settings of a recipe for an official set, and the reasons against running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from megalabel.data.official_sets import OFFICIAL_SETS, OfficialSet, recognise
from megalabel.device import find_device
from megalabel.errors import DataError, SettingError, nearest
from megalabel.plan import plan
from megalabel.plan.machine import measured_flops
from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.recipes.published import Published, load_published
from megalabel.wording import counted

if TYPE_CHECKING:
    import torch

    from megalabel.data.dataset import Dataset
    from megalabel.plan import Plan
    from megalabel.recipes.schema import Recipe

__all__ = ["ReproductionPlan", "cores", "official_set", "plan_reproduction"]

HELD = "training.validation=0.02"  # share of train to select on; published systems train on all rows
LONGEST = 24.0  # hours; longer runs need --anyway
STEP = 1e-3  # seconds; the least that a step takes on a CPU
LONG = 512.0  # tokens of a text with content, if there is no data to measure


@dataclass(frozen=True)
class ReproductionPlan:
    """What will be run, the figures to compare with, and the reasons against running it."""

    official: OfficialSet
    recipe: Recipe  # resolved
    published: Published | None
    settings: tuple[str, ...]  # changes of the recipe, the user's own last
    changes: tuple[str, ...]  # the user's own
    cost: Plan | None  # None if the size of an encoder is not known
    cpu_flops: float  # operations per second of this CPU
    device: str  # where it is run
    problems: tuple[str, ...]

    @property
    def cpu_hours(self) -> float | None:
        """The least hours on this CPU: arithmetic at full speed, and the steps themselves."""
        if self.cost is None:
            return None
        work = self.cost.work
        return (work.epochs * work.flops / self.cpu_flops + STEP * self.cost.total_steps) / 3600

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "recipe": self.recipe.name,
            "data": self.official.name,
            "seed": self.recipe.seed,
            "settings": list(self.settings),
            "changes": list(self.changes),
            "published": None if self.published is None else self.published.model_dump(mode="json"),
            "problems": list(self.problems),
            **self._cost(),
            "device": self.device,
        }

    def _cost(self) -> dict[str, Any]:
        """Return what it takes, as far as that is known."""
        if self.cost is None or self.cpu_hours is None:
            return dict.fromkeys(("steps", "texts_encoded", "memory_bytes", "cpu_hours"))
        return {
            "steps": self.cost.total_steps,
            "texts_encoded": self.cost.total_texts,
            "memory_bytes": round(self.cost.device_bytes),
            "cpu_hours": round(self.cpu_hours, 1),
        }


def official_set(data: Dataset, known_as: OfficialSet | None = None) -> OfficialSet:
    """Return the official set with this name, or the one that the data has the sizes of."""
    official = known_as or recognise(data)
    if official is None:
        raise DataError(
            f"{data.name} has {len(data.labels):,} labels, {len(data.train):,} train and {len(data.test):,} test "
            "points, like no official set",
            remedy=f"name it with --as: {', '.join(OFFICIAL_SETS)}",
        )
    return official


def plan_reproduction(
    recipe: str,
    official: OfficialSet,
    data: Dataset | None = None,
    *,
    variant: str = "",
    changes: Sequence[str] = (),
    seed: int | None = None,
    device: str | None = None,
) -> ReproductionPlan:
    """Resolve the published settings of a recipe for an official set, and list the reasons against running it.

    The settings are those of the recipe with the changes that its published figures list for this set; 2%
    of the train rows are held out for model selection, since the published systems train on all of
    them. The user's own changes come last.

    Args:
        recipe: a recipe with published figures, by name or file.
        official: which set.
        data: the data; None plans from the official sizes.
        variant: a variant of the setting that has figures of its own; empty for the main setting.
        changes: ``key=value``.
        seed: replaces the recipe's.
        device: replaces the recipe's.
    """
    base = load_recipe(recipe)
    figures = load_published(recipe) or load_published(base.name)  # the resolved recipe of a run has its name only
    if not figures:
        names = [name for name in list_recipes() if load_published(name)]
        raise SettingError(f"{base.name} has no published figures", remedy=f"these have: {', '.join(names)}")
    variants = {part.variant: part for part in figures if part.data == official.name}
    if variant and variant not in variants:
        known = [name for name in variants if name]
        hint = nearest(variant, known) if known else "there is none; leave it out"
        raise SettingError(f"{base.name} on {official.name} has no variant {variant!r}", remedy=hint)
    published = variants.get(variant)
    user_changes = [*changes, *([] if seed is None else [f"seed={seed}"])]
    settings = [HELD, *(published.changes if published else ()), *user_changes]
    resolved = load_recipe(recipe, [*settings, *([] if device is None else [f"training.device={device}"])])
    chosen = find_device(resolved.training.device)
    result = ReproductionPlan(
        official,
        resolved,
        published,
        tuple(settings),
        tuple(user_changes),
        cost=_cost(resolved, official, data, str(chosen)),
        cpu_flops=measured_flops(),
        device=str(chosen),
        problems=(),
    )
    problems = [
        *(_no_figures(base.name, figures, official) if published is None else []),
        *_differences(official, data),
        *_too_long(result.cpu_hours, chosen),
    ]
    return replace(result, problems=tuple(problems))


def cores() -> int:
    """Return how many cores training uses."""
    import torch

    return torch.get_num_threads()


def _cost(recipe: Recipe, official: OfficialSet, data: Dataset | None, device: str) -> Plan | None:
    """Return the plan of the training, from the official sizes if there is no data; None if it cannot be planned."""
    sizes: dict[str, Any] = {"data": data}
    if data is None:
        sizes = {"points": official.train, "labels": official.labels}
        if official.fields != "title":
            sizes |= {"query_tokens": LONG, "label_tokens": LONG}
    try:
        return plan(recipe, device=device, **sizes)
    except SettingError:  # an encoder of unknown size: training reports what is wrong, or knows better
        return None


def _no_figures(recipe: str, figures: list[Published], official: OfficialSet) -> list[str]:
    sets = dict.fromkeys(part.data for part in figures if part.metrics)
    return [f"no published figures of {recipe} on {official.name}, only on {', '.join(sets)}"]


def _differences(official: OfficialSet, data: Dataset | None) -> list[str]:
    """Return how a set differs from the official one."""
    if data is None:
        return []
    differences = []
    train = len(data.train) + (0 if data.val is None else len(data.val))
    if (len(data.labels), train, len(data.test)) != (official.labels, official.train, official.test):
        sizes = f"{counted(len(data.labels), 'label')}, {train:,} train and {counted(len(data.test), 'test point')}"
        differences.append(f"{official.name} has {official.size}, this data {sizes}")
    if official.filtered and not len(data.test.filter):
        differences.append("the test points have no filter pairs; put filter_labels_test.txt beside the data")
    return differences


def _too_long(hours: float | None, device: torch.device) -> list[str]:
    """Return a line if a CPU takes more than a day; the time on a GPU is not estimated."""
    import torch

    if hours is None or hours <= LONGEST or device.type != "cpu":
        return []
    gpu = "the GPU is not used" if torch.cuda.is_available() else "there is no GPU"
    return [f"{gpu}, and on {cores()} CPU cores this takes at least {hours / 24:,.0f} days"]
