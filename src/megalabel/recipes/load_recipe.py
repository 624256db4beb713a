"""Find, read, change and check recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from megalabel.documents import parse_yaml, read_yaml
from megalabel.errors import SettingError, nearest
from megalabel.network.network import ENCODER
from megalabel.recipes.schema import Recipe, switch_labels
from megalabel.settings import first_error

__all__ = ["dump_recipe", "list_recipes", "load_recipe", "make_recipe"]

HOME = Path(__file__).parent


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in HOME.glob("*.yaml"))


def load_recipe(source: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Return a recipe by its name or file, with ``key=value`` changes applied.

    Keys are paths such as ``training.epochs`` or ``stages.NAME.training.epochs``; values are read as YAML.

    >>> load_recipe("unidec-cpu", ["training.epochs=3"]).training.epochs
    3
    """
    path = Path(source) if str(source).endswith((".yaml", ".yml")) else HOME / f"{source}.yaml"
    if not path.is_file():
        names = list_recipes()
        raise SettingError(f"there is no recipe {str(source)!r}", remedy=nearest(str(source), names))
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise SettingError("a recipe is a YAML mapping", path=path)
    for change in changes:
        _apply(document, change)
    return make_recipe(document, None if path.parent == HOME else path)


def make_recipe(document: Mapping[str, Any], path: Path | None = None) -> Recipe:
    """Check a document; the first error is one line with its key and the nearest valid name."""
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        text = first_error(error)
        if "encoders" not in document:  # the recipe has one encoder, which needs no name
            text = text.replace(f"encoders.{ENCODER}", "encoder", 1)
        raise SettingError(text, path=path) from None
    except RecursionError:
        raise SettingError("this recipe is nested too deep", path=path) from None


def dump_recipe(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML; reading it gives the same recipe."""
    import yaml

    document = recipe.model_dump(mode="json", by_alias=True)
    if list(recipe.encoders) == [ENCODER]:
        document = {
            "encoder" if key == "encoders" else key: value[ENCODER] if key == "encoders" else value
            for key, value in document.items()
        }
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return text


def _apply(document: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals or not key:
        raise SettingError(f"{change!r} is not key=value", remedy="for example training.epochs=3")
    *path, last = key.split(".")
    node: Any = document
    for part in path:
        if isinstance(node, list):  # of stages
            node = _named(node, part, key)
            continue
        current = node.get(part)
        if current in (None, "none"):
            node[part] = {}
        elif isinstance(current, str) and part != "kind":  # a plain name means that kind
            node[part] = {"kind": current}
        node = node[part]
        if not isinstance(node, dict) and not (part == "stages" and isinstance(node, list)):
            raise SettingError(f"{part!r} in {key!r} has no keys of its own")
    if isinstance(node, list):
        raise SettingError(f"{key!r} is a whole stage", remedy=f"name a key of it, such as {key}.training.epochs=3")
    try:
        node[last] = parse_yaml(value)
    except SettingError as error:
        raise SettingError(f"{key}: {error.what}", remedy="quote it, if it is a text") from error
    if key == "batching.labels":
        document["batching"] = switch_labels(node, str(node[last]))


def _named(stages: list[Any], name: str, key: str) -> dict[str, Any]:
    """Return the stage of this name."""
    named = {str(stage.get("name")): stage for stage in stages if isinstance(stage, dict)}
    if name not in named:
        raise SettingError(f"{key}: there is no stage {name!r}", remedy=nearest(name, named) if named else "add it")
    return named[name]
