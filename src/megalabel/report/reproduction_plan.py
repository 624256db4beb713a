"""The published setting of a recipe for an official set, and the reasons against running it here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from megalabel.data.official_sets import OFFICIAL_SETS, OfficialSet, recognise
from megalabel.device import find_device
from megalabel.errors import DataError, SettingError
from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.recipes.published import Published, load_published
from megalabel.report.training_cost import Sizes, TrainingCost, training_cost

if TYPE_CHECKING:
    import torch

    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["ReproductionPlan", "cores", "official_set", "plan_reproduction"]

HELD = "training.validation=0.02"  # of train, to select on; published systems train on all of it
LONGEST = 24.0  # hours that are tried without asking


@dataclass(frozen=True)
class ReproductionPlan:
    """What will be run, the figures to compare with, and the reasons against running it."""

    official: OfficialSet
    recipe: Recipe  # resolved
    published: Published | None
    settings: tuple[str, ...]  # changes of the recipe, the user's own last
    changes: tuple[str, ...]  # the user's own
    cost: TrainingCost
    device: str  # where it is run
    problems: tuple[str, ...]

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
            "steps": self.cost.steps,
            "texts_encoded": round(self.cost.texts),
            "cpu_hours": round(self.cost.hours(cores()), 1),
            "device": self.device,
        }


def official_set(data: Dataset, known_as: OfficialSet | None = None) -> OfficialSet:
    """Return the official set this is, by the name given or by its sizes."""
    official = known_as or recognise(data)
    if official is None:
        raise DataError(
            f"{data.name} has {len(data.labels):,} labels, {len(data.train):,} train and {len(data.test):,} test "
            "points, which no official set has",
            remedy=f"name it with --as: {', '.join(OFFICIAL_SETS)}",
        )
    return official


def plan_reproduction(
    recipe: str,
    official: OfficialSet,
    data: Dataset | None = None,
    *,
    changes: Sequence[str] = (),
    seed: int | None = None,
    device: str | None = None,
) -> ReproductionPlan:
    """Resolve the published setting of a recipe for an official set, and list the reasons against running it.

    The setting is the recipe with the changes that its published figures list for this set; 2%
    of the train rows are held out for model selection, since the published systems train on all of
    them. The user's own changes come last.

    Args:
        recipe: a recipe with published figures, by name or file.
        official: which set.
        data: the set as it was read; None plans from its official sizes alone.
        changes: ``key=value``.
        seed: replaces the recipe's.
        device: replaces the recipe's.
    """
    base = load_recipe(recipe)
    figures = load_published(recipe) or load_published(base.name)  # the resolved recipe of a run has its name only
    if not figures:
        names = [name for name in list_recipes() if load_published(name)]
        raise SettingError(f"{base.name} has no published figures", remedy=f"these have: {', '.join(names)}")
    published = next((part for part in figures if part.data == official.name), None)
    user_changes = [*changes, *([] if seed is None else [f"seed={seed}"])]
    settings = [HELD, *(published.changes if published else ()), *user_changes]
    resolved = load_recipe(recipe, [*settings, *([] if device is None else [f"training.device={device}"])])
    chosen = find_device(resolved.training.device)
    cost = training_cost(resolved, _sizes(official, data))
    problems = [*_no_figures(base.name, figures, official), *_unlike(official, data), *_too_long(cost, chosen)]
    return ReproductionPlan(
        official, resolved, published, tuple(settings), tuple(user_changes), cost, str(chosen), tuple(problems)
    )


def cores() -> int:
    """Return how many cores training uses."""
    import torch

    return torch.get_num_threads()


def _sizes(official: OfficialSet, data: Dataset | None) -> Sizes:
    if data is None:
        return Sizes(official.train, official.labels)
    words, label_words = (
        sum(len(text.split()) for text in texts) / len(texts) for texts in (data.train.texts, data.labels.texts)
    )
    labels_per_point = data.train.targets.nnz / len(data.train)
    return Sizes(len(data.train), len(data.labels), labels_per_point, words, label_words)


def _no_figures(recipe: str, figures: list[Published], official: OfficialSet) -> list[str]:
    sets = [part.data for part in figures]
    if official.name in sets:
        return []
    return [f"no figures of {recipe} on {official.name} are known, only on {', '.join(sets)}"]


def _unlike(official: OfficialSet, data: Dataset | None) -> list[str]:
    """Return how a set differs from the official one."""
    if data is None:
        return []
    differences = []
    train = len(data.train) + (0 if data.val is None else len(data.val))
    if (len(data.labels), train, len(data.test)) != (official.labels, official.train, official.test):
        sizes = f"{len(data.labels):,} labels, {train:,} train and {len(data.test):,} test points"
        differences.append(f"{official.name} has {official.size}; here are {sizes}")
    if official.filtered and not len(data.test.filter):
        differences.append("there are no filter pairs of the test points, put filter_labels_test.txt beside the data")
    return differences


def _too_long(cost: TrainingCost, device: torch.device) -> list[str]:
    """Return a line if a CPU takes more than a day; the time on a GPU is not estimated."""
    import torch

    hours = cost.hours(cores())
    if hours <= LONGEST or device.type != "cpu":
        return []
    gpu = "there is a GPU, but it is not to be used" if torch.cuda.is_available() else "there is no GPU here"
    return [f"{gpu}, and on {cores()} CPU cores this takes about {hours / 24:,.0f} days"]
