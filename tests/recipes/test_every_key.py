"""Every key of every recipe: another value changes the run, or is refused."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from megalabel import load, train
from megalabel.errors import MegalabelError
from megalabel.recipes import list_recipes, load_recipe
from megalabel.recipes.load_recipe import make_recipe

# Words about a recipe, and where or how fast it computes: no other weights, and none should come of them.
PROSE = {"name", "paper", "about", "differs"}
NO_OTHER_WEIGHTS = {"training.device", "training.chunk_size", "training.precision"}
# What so small a run does not show: three epochs do not run out of patience, a search over 70 labels is exact.
_SEARCH = ("M", "ef_construction", "ef_search", "nlist", "nprobe", "pq", "rerank")
ELSEWHERE = {"training.patience", *(f"batching.negatives.search.{key}" for key in _SEARCH)}
STILL = {"astec", "astec-cpu"}  # their vectors do not change while negatives are mined: a second refresh finds the same

TINY = {
    "bag": {"kind": "bag", "source": None, "options": {"dim": 8, "words": 128, "bigrams": 64, "characters": 64}},
    "inception": {"kind": "inception", "source": None, "options": {"dim": 16, "words": 128, "max_length": 12}},
}
TINY["transformer"] = TINY["bag"]  # its options are walked in tests/unit/encoders


@cache
def data():
    return load("synthetic:points=120,labels=70")


def tiny(name: str) -> dict[str, Any]:
    """Return the document of a recipe over a small encoder, with few and small batches."""
    document = load_recipe(name).model_dump(mode="json", by_alias=True)
    settings = document.pop("encoders")["encoder"]
    document["encoder"] = {key: value for key, value in settings.items() if key in ("query_length", "label_length")}
    document["encoder"] |= TINY[settings["kind"]]
    document["encoder"] |= {"query_length": 9, "label_length": 8}
    document["batching"] |= {"batch_size": 24}
    if "refresh" in document["batching"] and document["batching"]["refresh"] != {"start": 5, "every": 5}:
        document["batching"]["refresh"] = {"start": 1, "every": 1}
    document["training"] |= {"epochs": 3, "evaluate_every": 1, "warmup": 0.2}
    for space in document["spaces"].values():
        space["size"] = 5
    for head in document["heads"].values():
        if head.get("dim") is not None:
            head["dim"] = 6
    return document


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value that is no mapping; lists are values."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    else:
        yield path


def get(node: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        node = node[part]
    return node


def put(node: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(node))
    get(copy, path[:-1])[path[-1]] = value
    return copy


def others(recipe: Any, document: dict[str, Any], path: tuple[str, ...]) -> list[Any]:
    """Return other values for a key: the other choices of a literal, a larger or smaller number, a truth turned."""
    value = get(document, path)
    choices = literals(field_type(recipe, path))
    if not choices and isinstance(value, bool):
        choices = [not value]
    elif not choices and isinstance(value, int):
        choices = [value + 1, max(1, value - 1)]
    elif not choices and isinstance(value, float):
        choices = [value * 1.5 + 0.1, value / 2]
    elif not choices and value is None:
        choices = [15, 1, 0.5, True, "minilm"]
    elif not choices:
        choices = [[3]] if isinstance(value, list) else [f"{value}x"]
    return [choice for choice in choices if choice != value or type(choice) is not type(value)]


def field_type(recipe: Any, path: tuple[str, ...]) -> Any:
    node = recipe
    path = ("encoders", *path) if path[0] == "encoder" else path
    for part in path[:-1]:
        node = node[part] if isinstance(node, dict) else getattr(node, "source" if part == "from" else part)
    fields = getattr(type(node), "model_fields", {})
    return fields[path[-1]].annotation if path[-1] in fields else None


def literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in literals(part)]


def run(document: dict[str, Any], folder: Any) -> bytes:
    """Train, and return everything a run leaves but times: weights, predictions, the log."""
    model = train(make_recipe(document), data(), folder)
    model.add_labels(["a label nobody trained on, with a text that is longer than all others by far"], ["new"])
    best = model.search([*data().test.texts, "a label nobody trained on"], 5)
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in log:
        for key in ("seconds", "memory_mb"):
            record.pop(key, None)
    weights = b"".join(value.detach().numpy().tobytes() for value in model.network.parameters())
    fitted = json.dumps([model.weights, None if model.fusion is None else model.fusion.to_dict()])
    return (
        weights + best.ids.tobytes() + np.round(best.scores, 6).tobytes() + json.dumps(log).encode() + fitted.encode()
    )


def keys(name: str) -> list[tuple[str, ...]]:
    return [path for path in leaves(tiny(name)) if path[0] not in PROSE]


def check(name: str, paths: list[tuple[str, ...]], tmp_path: Any) -> None:
    document = tiny(name)
    recipe = make_recipe(document)
    expected = run(document, tmp_path / "base")
    idle = []
    for number, path in enumerate(paths):
        if ".".join(path) in NO_OTHER_WEIGHTS | ELSEWHERE:
            continue
        if name in STILL and ".".join(path) == "batching.refresh.every":
            continue
        changed = []
        for place, value in enumerate(others(recipe, document, path)):
            try:
                changed.append(run(put(document, path, value), tmp_path / f"{number}-{place}") != expected)
            except MegalabelError:
                continue  # refused
            if changed[-1]:
                break
        if changed and not any(changed):
            idle.append(".".join(path))
    assert not idle, f"{name}: other values of these keys change nothing: {', '.join(idle)}"


@pytest.mark.parametrize("name", ["unidec-cpu"])
def test_every_key_has_an_effect_or_is_refused(name, tmp_path):
    check(name, keys(name), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_recipes() if name != "unidec-cpu"])
def test_every_key_of_all_recipes_has_an_effect_or_is_refused(name, tmp_path):
    check(name, keys(name), tmp_path)
