"""Find, read, change and check recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from megalabel.errors import SettingError, nearest
from megalabel.recipes.schema import Recipe, switch_labels
from megalabel.settings import Kinds

__all__ = ["dump_recipe", "list_recipes", "load_recipe", "make_recipe"]

HOME = Path(__file__).parent
UNKNOWN = "extra_forbidden"  # pydantic's word for it


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in HOME.glob("*.yaml"))


def load_recipe(source: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Return a recipe by its name or file, with ``key=value`` changes applied.

    Keys are paths such as ``training.epochs``; values are read as YAML.

    >>> load_recipe("unidec-cpu", ["training.epochs=3"]).training.epochs
    3
    """
    import yaml

    path = Path(source) if str(source).endswith((".yaml", ".yml")) else HOME / f"{source}.yaml"
    if not path.is_file():
        names = list_recipes()
        raise SettingError(f"there is no recipe {str(source)!r}", remedy=nearest(str(source), names))
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise SettingError(f"this is not YAML ({getattr(error, 'problem', error)})", path=path, line=line) from error
    if not isinstance(document, dict):
        raise SettingError("a recipe is a YAML mapping", path=path)
    for change in changes:
        _apply(document, change)
    return make_recipe(document, None if path.parent == HOME else path)


def make_recipe(document: Mapping[str, Any], path: Path | None = None) -> Recipe:
    """Check a document; the first thing wrong is one line with its key and the nearest valid name."""
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] != UNKNOWN)  # a key missed may stand there misspelt
        place = [str(part) for part in first["loc"]]
        key = ".".join(place) or "recipe"
        if first["type"] == UNKNOWN:
            raise SettingError(
                f"unknown key {key!r}", path=path, remedy=nearest(place[-1], _keys(place[:-1], document))
            ) from None
        raise SettingError(f"{key}: {first['msg'][0].lower()}{first['msg'][1:]}", path=path) from None


def dump_recipe(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML; reading it gives the same recipe."""
    import yaml

    text: str = yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
    return text


def _apply(document: dict[str, Any], change: str) -> None:
    import yaml

    key, equals, value = change.partition("=")
    if not equals or not key:
        raise SettingError(f"{change!r} is not key=value", remedy="for example training.epochs=3")
    *path, last = key.split(".")
    node = document
    if path[:1] == ["augment"] and not isinstance(document.get("augment"), dict):  # a plain name, or nothing yet
        named = document.get("augment") not in (None, "none")
        document["augment"] = {"kind": document["augment"]} if named else {}
    for part in path:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise SettingError(f"{part!r} in {key!r} has no keys of its own")
    try:
        node[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise SettingError(f"the value of {key!r} is not YAML", remedy="quote it") from error
    if key == "batching.labels":
        document["batching"] = switch_labels(node, str(node[last]))


def _keys(path: list[str], document: Any) -> list[str]:
    """Return the valid keys at a place in a recipe; names of heads and places in lists are passed over."""
    model: type[BaseModel] | Kinds | None = Recipe
    for part in path:
        fields = _fields(model, document)
        document = document.get(part) if isinstance(document, Mapping) else document
        if part in fields:
            model = _model_in(fields[part].annotation, fields[part].metadata)
    return list(_fields(model, document))


def _fields(model: type[BaseModel] | Kinds | None, document: Any) -> dict[str, Any]:
    settings = model.choose(document) if isinstance(model, Kinds) else model
    return {} if settings is None else dict(settings.model_fields)


def _model_in(annotation: Any, metadata: Sequence[Any] = ()) -> type[BaseModel] | Kinds | None:
    """Return the settings that a type holds: itself, or in a list, a mapping or a choice."""
    for part in (*metadata, annotation):
        if isinstance(part, Kinds) or (isinstance(part, type) and issubclass(part, BaseModel)):
            return part
    parts = get_args(annotation)
    return next((found for part in parts[::-1] if (found := _model_in(part))), None)
