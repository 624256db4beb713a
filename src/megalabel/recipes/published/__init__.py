"""Published figures of the recipes: one JSON file for each system, beside the recipe that rebuilds it."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from megalabel.errors import DataError
from megalabel.settings import Settings, first_error

__all__ = ["Published", "load_published"]

HOME = Path(__file__).parent


class Published(Settings):
    """Published figures on one data set, with their source and the setting they were measured with."""

    data: str
    variant: str = ""  # what the paper changes for these figures; empty for its main setting
    metrics: dict[str, float]
    source: str
    changes: tuple[str, ...] = ()  # key=value, where the published setting for this data differs from the recipe
    cost: str = ""  # hardware and time that the paper reports
    remark: str = ""  # what the sources leave open


def load_published(recipe: str | Path) -> list[Published]:
    """Return the published figures of a recipe, one entry per data set and variant; an empty list if there are none.

    Args:
        recipe: the name of a recipe, or a recipe file of your own. The figures of ``DIR/NAME.yaml`` are read
            from ``DIR/published/NAME.json``.

    >>> [figures.data for figures in load_published("dexml") if not figures.variant][:2]
    ['EURLex-4K', 'LF-AmazonTitles-131K']
    >>> load_published("auto")
    []
    """
    path = HOME / f"{recipe}.json"
    if str(recipe).endswith((".yaml", ".yml")):
        path = Path(recipe).parent / "published" / f"{Path(recipe).stem}.json"
    if not path.is_file():
        return []
    try:
        return TypeAdapter(list[Published]).validate_json(path.read_bytes())
    except ValidationError as error:
        raise DataError(f"invalid published figures: {first_error(error)}", path=path) from None
