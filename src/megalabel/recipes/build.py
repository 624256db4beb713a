"""From a recipe to the network it describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from megalabel.encoders.settings import make_encoder
from megalabel.network.network import Network
from megalabel.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch import nn

    from megalabel.data.dataset import Dataset
    from megalabel.network.spaces import LabelSpace
    from megalabel.recipes.schema import Recipe

__all__ = ["build_encoders", "build_network"]


def build_encoders(recipe: Recipe, data: Dataset) -> dict[str, nn.Module]:
    """Return the untrained encoders; token tables take their idf weights from train and label texts."""
    return {
        name: make_encoder(settings, recipe.seed, data.train.texts, data.labels.texts)
        for name, settings in recipe.encoders.items()
    }


def build_network(
    recipe: Recipe,
    encoders: Mapping[str, nn.Module] | nn.Module,
    spaces: Mapping[str, LabelSpace] | int,
    ranks: Ranks = ALONE,
) -> Network:
    """Return the network of a recipe without stages, or of one stage.

    Args:
        recipe: names the heads and their settings.
        encoders: encoders by name, or the only encoder of the recipe.
        spaces: label spaces by name; a number means that many labels.
        ranks: the processes that train it together.
    """
    by_name = encoders if isinstance(encoders, Mapping) else {next(iter(recipe.encoders)): encoders}
    return Network(
        recipe.heads,
        by_name,
        spaces,
        lengths={name: (part.query_length, part.label_length) for name, part in recipe.encoders.items()},
        precision=recipe.training.precision,
        frozen=recipe.freeze,
        ranks=ranks,
    )
