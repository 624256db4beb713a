"""What a stage of a run leaves for the next ones, and what it may begin from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megalabel.errors import SettingError, nearest
from megalabel.files import writing_folder
from megalabel.model.store import SPACES, check_weights, find_model, save_encoders, save_head_tensors

if TYPE_CHECKING:
    from megalabel.network.spaces import LabelSpace
    from megalabel.recipes.schema import Recipe
    from megalabel.training.phase import Phase

__all__ = ["check_sources", "save_stage"]


def save_stage(
    phase: Phase, best: dict[str, Any], spaces: Mapping[str, LabelSpace], folder: Path, drop: Sequence[str]
) -> None:
    """Write what the next stages may take over."""
    network = phase.whole(best)
    with writing_folder(folder, overwrite=True) as place:
        for name, space in spaces.items():
            if space.members is not None:
                space.save(place / SPACES / name)
        save_encoders(network, place, drop)
        save_head_tensors(network, place, drop)


def check_sources(recipe: Recipe) -> None:
    """Refuse a stage that begins from what is neither an earlier stage nor a saved model, whole and undamaged."""
    earlier: list[str] = []
    for stage, staged in recipe.stage_recipes():
        wanted = staged.init_from
        if wanted is not None and wanted not in earlier:
            if not Path(wanted).exists():
                hint = nearest(wanted, earlier) if earlier else "give the folder of a finished run"
                what = f"stage {stage.name}: init_from is {wanted!r}, which is neither an earlier stage nor a run"
                raise SettingError(what, remedy=hint)
            check_weights(find_model(wanted))
        earlier.append(stage.name)
