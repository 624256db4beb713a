"""Every key of every recipe: another value changes the run, or is refused in one line.

Recipes are walked over small encoders and data. The files in ``walked`` turn on what no recipe of the package uses,
so that together they hold every key that a recipe can have.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from megalabel import Dataset, train
from megalabel.batching.negatives import Search
from megalabel.errors import MegalabelError
from megalabel.heads.dense import CandidateSettings, DenseSettings
from megalabel.heads.head import NGRAMS
from megalabel.model.store import load_head_tensors
from megalabel.recipes import list_recipes
from megalabel.recipes.load_recipe import make_recipe
from megalabel.recipes.schema import Recipe, Training
from megalabel.settings import Settings, reachable

Keys = tuple[str | int, ...]  # the path of a key in a document
Document = dict[str, Any]

BERT, RUN = "BERT", "RUN"  # stand for the folders of a tiny transformer and of a finished run
FILES = sorted(path.stem for path in (Path(__file__).parent / "walked").glob("*.yaml"))
CLASSES = [each for each in reachable(Recipe) if each.__module__.startswith("megalabel.")]

# Keys that do not change what a run computes, and where they are tested.
ELSEWHERE = {
    ("Recipe", "name"): "prose",
    ("Recipe", "paper"): "prose",
    ("Recipe", "about"): "prose",
    ("Recipe", "differs"): "prose",
    ("Recipe", "drop"): "of a stage, refused in a recipe: tests/recipes/test_effects.py",
    ("Recipe", "space"): "of a stage, refused in a recipe: tests/recipes/test_effects.py",
    ("Training", "device"): "where it is computed: tests/training/test_device.py",
    ("Training", "validation_like_test"): "symmetric sets: tests/training/test_train.py",
    ("Training", "chunk_size"): "memory: tests/unit/network/test_gradcache.py",
    ("TransformerOptions", "batch_tokens"): "speed: tests/unit/encoders/test_transformer.py",
    ("IvfSearch", "pq"): "from 1,024 labels on: tests/unit/index/test_ivf.py",
    ("IvfSearch", "rerank"): "with pq: tests/unit/index/test_ivf.py",
}
SAME = {("Training", "precision"): ["float32"]}  # values that mean the same on a CPU
ANY = {"select", "k", "loss_positives", "rows", "source", "weights"}  # keys of which one other value is enough
# Kinds that compute the same: losses by definition, more of them if a text has one positive, AdamW on dense gradients.
EQUAL = ({"softmax", "sup_con"}, {"adamw", "lazy_adamw"})
EQUAL_FOR_ONE_POSITIVE = {"softmax", "sup_con", "decoupled_softmax"}
# What to change first where the small run would not show a key.
SHOWN: dict[str, dict[str, Any]] = {
    "training.patience": {
        "training.epochs": 6,  # statistics of batches move even if no weight does
        **{f"training.{group}.lr": 1e-12 for group in ("encoder", "heads", "tables")},
    },
    "training.select": {"training.epochs": 8, "training.encoder.lr": 0.05},
    "batching.batch_size": {"batching.min_batches": None},  # the smaller of the two counts
    "batching.min_batches": {"batching.batch_size": 40},
    "batching.refresh.every": {"batching.order.double_at": [], "batching.refresh.start": 0},
}
METRICS = ["R@100", "PSP@5", "P@1", "R@10", "P@3", "P@5", "PSP@1", "PSP@3", "nDCG@3", "nDCG@1"]
POOR = {"hnsw": {"M": 2, "ef_construction": 8, "ef_search": 8}, "ivf": {"nlist": 8, "nprobe": 1}}  # misses some labels


# ------------------------------------------------------------------ documents


def leaves(node: Any, path: Keys = ()) -> Iterator[Keys]:
    """Yield the path of every value that holds no mapping."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list) and any(isinstance(part, dict) for part in node):
        for place, value in enumerate(node):
            yield from leaves(value, (*path, place))
    else:
        yield path


def get(node: Any, path: Keys) -> Any:
    for part in path:
        node = node[part]
    return node


def holds(document: Document, path: Keys) -> bool:
    """Return whether the sections that lead to a key are there."""
    try:
        return get(document, path[:-1]) is not None
    except KeyError:
        return False


def shown_by(document: Document, path: Keys) -> Document:
    """Return what to change first so that a small run shows a key, of the recipe or of a stage."""
    of_stage = path[0] == "stages" and len(path) > 2
    place, rest = (path[:2], path[2:]) if of_stage else ((), path)
    key = ".".join(map(str, rest))
    changes = {(*place, *other.split(".")): value for other, value in SHOWN.get(key, {}).items()}
    return {keys: value for keys, value in changes.items() if holds(document, keys)}


def put(document: Document, changes: dict[Any, Any]) -> Document:
    """Return a copy of the document with other values at some paths."""
    copy = json.loads(json.dumps(document))
    for path, value in changes.items():
        *parents, last = path.split(".") if isinstance(path, str) else path
        get(copy, tuple(parents))[last] = value
    return copy


def owner(recipe: Recipe, path: Keys) -> tuple[Settings | None, str]:
    """Return the settings that hold the last key of a path, and the name of its field; None for a name of a part."""
    if path[0] == "stages" and len(path) > 3:  # a stage's differences are part of the stage's own recipe
        recipe, path = recipe.stage_recipes()[int(path[1])][1], path[2:]
    node: Any = recipe
    for part in path[:-1]:
        node = node[part] if isinstance(node, dict | tuple) else getattr(node, str(part))
    last = "source" if path[-1] == "from" else str(path[-1])
    return (node, last) if isinstance(node, Settings) else (None, last)


def pairs(document: Document) -> set[tuple[str, str]]:
    """Return the settings class and the field of every key of a document."""
    recipe = make_recipe(document)
    known = set()
    for path in leaves(document):
        for end in range(1, len(path) + 1):
            settings, field = owner(recipe, path[:end])
            if settings is not None:
                known.add((type(settings).__name__, field))
    return known


# ------------------------------------------------------------------ other values


def others(recipe: Recipe, document: Document, path: Keys) -> tuple[list[dict[Any, Any]], bool]:
    """Return changes that give a key other values, and whether each of them must have an effect, or any."""
    settings, field = owner(recipe, path)
    value = get(document, path)
    kinds = family(settings, field)
    refreshed = document["batching"]["order"]["kind"] == "clustered" or document["batching"].get("negatives", {}).get(
        "mined"
    )
    if kinds:
        soon = {"batching.refresh": {"start": 0, "every": 1}} if not refreshed else {}
        groups = (*EQUAL, *([EQUAL_FOR_ONE_POSITIVE] if one_positive(document) else []))
        same = {name for group in groups if value in group for name in group}
        others = {name: kind for name, kind in kinds.items() if name not in {value, *same}}
        return [
            {path[:-1]: switched(document, path, kind), **(soon if name == "clustered" else {})}
            for name, kind in others.items()
        ], not isinstance(settings, Search)  # an approximate one may find the same
    choices = literals(type(settings).model_fields[field].annotation) if settings is not None else []
    choices += names(document, settings, field, path)
    every = bool(choices) and field not in ANY
    if isinstance(value, bool):
        choices, every = [not value], True
    elif isinstance(value, int):
        choices += [value + 1, 3 * value + 7, max(1, value // 2), 0, 1, 256]
    elif isinstance(value, float):
        choices += [value * 1.5 + 0.1, value / 2, 0.5, value / 20]
    elif value is None and not every:
        choices += [15, 1, 0.5, 1e-3, False, True]
    same = [value, *SAME.get((type(settings).__name__, field), [])]
    refresh = path == ("batching", "negatives", "mined") and not refreshed
    more = {"batching.refresh": {"start": 0, "every": 1}} if refresh else {}
    return [{path: choice, **more} for choice in choices if choice not in same], every


def one_positive(document: Document) -> bool:
    """Return whether no stage shows the losses more than one positive of a text."""
    sections = [stage["batching"] for stage in document["stages"]] or [document["batching"]]
    return all(
        section.get("loss_positives") == "one"
        or (section.get("labels") == "candidates" and section.get("positives", {}).get("pick") == "one")
        for section in sections
    )


def literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in literals(part)]


def root(settings: type) -> type:
    """Return the base class of a family of settings, such as that of all heads."""
    return settings.__mro__[settings.__mro__.index(Settings) - 1] if issubclass(settings, Settings) else settings


def family(settings: Settings | None, field: str) -> dict[str, type[Settings]]:
    """Return the settings classes among which a field chooses, by its value; empty if it does not choose a class."""
    kinds = [each for each in CLASSES if root(each) is root(type(settings))]
    values = [literals(each.model_fields[field].annotation) for each in kinds if field in each.model_fields]
    if len(kinds) < 2 or [len(value) for value in values] != [1] * len(kinds):
        return {}
    return {value: each for (value,), each in zip(values, kinds, strict=True)}


def switched(document: Document, path: Keys, kind: type[Settings]) -> Document:
    """Return a section of another kind, with the keys that both kinds have alike."""
    section = dict(get(document, path[:-1]))
    fields = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    kept = {key: value for key, value in section.items() if key in fields and key != "options"}
    value = literals(fields[str(path[-1])])[0]
    return kept | {path[-1]: value} | POOR.get(value, {})


def names(document: Document, settings: Any, field: str, path: Keys) -> list[Any]:
    """Return values of a key that holds names, lists or other settings."""
    heads, place = list(document["heads"]), int(path[1]) if path[0] == "stages" and len(path) > 1 else 0
    earlier = [stage["name"] for stage in document["stages"][: max(0, place - 1)]]  # the one before is the default
    parts = [*document["encoders"], *heads]
    first = next(iter(document["encoders"]))
    current = getattr(settings, field, None) or getattr(settings, "encoder", None) or first  # if it is a head
    encoders = [name for name in document["encoders"] if name != current]
    optimiser = {"kind": "sgd", "lr": 0.03}
    by_field: dict[str, list[Any]] = {
        "augment": [None, "gandalf"],
        "encoder": encoders if isinstance(settings, DenseSettings) else [],
        "label_encoder": encoders,
        "space": [*document["spaces"], None],
        "of": [*document["spaces"], None],
        "spaces": [{"more": {"size": 3}}],
        "candidates": [{"from": head, "top": 2} for head in heads] if isinstance(settings, DenseSettings) else [],
        "loss": [None, "bce"],
        "share": ["both", None],
        "features": [NGRAMS, *heads],
        "vectors": [*heads, None],
        "tables": [optimiser, None],
        "heads": [optimiser, None] if isinstance(settings, Training) else [[head] for head in heads if len(heads) > 1],
        "betas": [[0.5, 0.9]],
        "ngrams": [[2], [3, 5]],
        "select": METRICS,
        "milestones": [[1], [2], []],
        "init_from": [RUN, *earlier, None],
        "freeze": [[], *([part] for part in parts)],
        "drop": [[], *([part] for part in parts)],
        "weights": [{head: 2.0 + place for place, head in enumerate(heads)}, [1.0, 2.0, 3.0]],
        "stages": [[{"name": "one"}, {"name": "two"}]],
        "name": ["other"],
        "source": heads if isinstance(settings, CandidateSettings) else [BERT, "minilm"],
    }
    return list(by_field.get(field, []))


# ------------------------------------------------------------------ the walk


class Walk:
    """Runs documents, each once, and remembers which key had an effect in which surroundings."""

    def __init__(self, folder: Path, data: Dataset, documents: dict[str, Document], write_bert: Any) -> None:
        self.folder, self.data, self.documents = folder, data, documents
        self.writers = {BERT: write_bert, RUN: self.write_run}
        self.runs: dict[str, str | None] = {}
        self.refusal = ""  # the last one
        self.shown: dict[str, bool] = {}  # by key and surroundings: whether another value changed the run

    def train(self, document: Document, folder: Path) -> Any:
        text = json.dumps(document)
        for name, write in self.writers.items():
            if json.dumps(name) in text:
                if not (self.folder / name).exists():
                    write(self.folder / name)
                text = text.replace(json.dumps(name), json.dumps(str(self.folder / name)))
        return train(make_recipe(json.loads(text)), self.data, folder)

    def write_run(self, folder: Path) -> None:
        self.train(self.documents["stages"] | {"stages": [], "spaces": {}, "seed": 7}, folder)

    def outcome(self, document: Document) -> str | None:
        """Return a hash of all that a run leaves except times; None if the document is refused."""
        key = json.dumps(document, sort_keys=True)
        if key not in self.runs:
            folder = self.folder / str(len(self.runs))
            try:
                self.runs[key] = fingerprint(self.train(document, folder), folder, self.data.test.texts)
            except MegalabelError as error:
                assert "\n" not in str(error), error
                self.runs[key], self.refusal = None, str(error)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return self.runs[key]

    def check(self, name: str, *, every: bool = True) -> None:
        """Assert that every key has an effect or is refused.

        Without ``every`` one other choice of a key is enough, and so is one of the parts that have it.
        """
        document = self.documents[name]
        recipe = make_recipe(document)
        idle = [path for path in leaves(document) if not self.has_effect(recipe, document, path, every)]
        keys = ", ".join(".".join(map(str, path)) for path in idle)
        assert not idle, f"{name}: other values of these keys change nothing: {keys}"

    def has_effect(self, recipe: Recipe, document: Document, path: Keys, every: bool) -> bool:
        """Return whether other values of a key change the run or are refused."""
        settings, field = owner(recipe, path)
        pair = (type(settings).__name__, field)
        around = json.dumps([pair, surroundings(document, path)] if every else [root(type(settings)).__name__, field])
        if pair in ELSEWHERE or around in self.shown or (field == "source" and not every):  # which loads transformers
            return True
        key = ".".join(map(str, path))
        base = put(document, shown_by(document, path))
        if base != document and self.outcome(base) is None:  # every stage sets its own
            base = document
        expected = self.outcome(base)
        assert expected is not None, f"{key}: the run to compare with is refused: {self.refusal}"
        changes, all_count = others(recipe, base, path)
        every = every and all_count
        changed = []
        for change in changes:
            outcome = self.outcome(put(base, change))
            changed += [] if outcome is None else [outcome != expected]
            if changed and changed[-1] is not every:  # one that has no effect, or one that has
                break
        self.shown[around] = any(changed)
        return all(changed) if every else any(changed) or not changed


def surroundings(document: Document, path: Keys) -> list[Any]:
    """Return the choices around a key: what all keys depend on, and all that the sections above the key choose."""
    parts = [*document["encoders"].values(), document["batching"]]
    if path[0] not in ("encoders", "heads", "batching"):
        parts += document["heads"].values()
    kinds = sorted({str(kind(part)) for part in parts}) + [bool(document[key]) for key in ("stages", "freeze")]
    sections = [get(document, path[:end]) for end in range(1, len(path))]
    named = path[0] in ("encoders", "heads", "spaces")  # the first section holds parts by name
    chosen = [choice(section) if isinstance(section, list) else {key: choice(part) for key, part in section.items()}
              | {"loss": bool(section.get("loss"))} for section in sections[named:]]  # fmt: skip
    return [kinds, chosen]


def kind(section: Any) -> Any:
    return next((section[key] for key in ("kind", "labels", "pick") if key in section), True) if section else None


def choice(value: Any) -> Any:
    """Return a word as it is, the kind of a section, and of all else whether it is on."""
    return value if isinstance(value, str) else kind(value) if isinstance(value, dict) else bool(value)


def fingerprint(model: Any, folder: Path, texts: Sequence[str]) -> str:
    """Return a hash of weights, predictions, the log, and the names of what stages hand on."""
    new = ["a label nobody trained on, with a text that is longer than all others by far"]
    new += [f"{first} {second} {third}" for first, second, third in zip(texts[:6], texts[6:], texts[12:], strict=False)]
    model.add_labels(new, [f"new {number}" for number in range(len(new))])
    best = model.search([*texts, "a label nobody trained on"], len(model.labels))
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in log:
        for key in ("seconds", "memory_mb"):
            record.pop(key, None)
    handed_on = [
        [*sorted(load_head_tensors(stage)), *sorted(path.name for path in (stage / "encoders").glob("*"))]
        for stage in sorted((folder / "stages").glob("*"))
    ]
    fitted = [model.weights, None if model.fusion is None else model.fusion.to_dict()]
    digest = blake2b(json.dumps([log, handed_on, fitted]).encode())
    for value in (*(part.detach().float().numpy() for part in model.network.parameters()), best.ids, best.scores):
        digest.update(np.round(value, 6).tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def walk(tmp_path_factory, walk_data, documents, write_bert):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)  # thousands of files that need not survive a power cut
        yield Walk(tmp_path_factory.mktemp("walk"), walk_data, documents, write_bert)


def test_every_setting_is_walked(documents):
    walked = set().union(*(pairs(document) for document in documents.values()))
    assert {(each.__name__, field) for each in CLASSES for field in each.model_fields} == walked


@pytest.mark.extra
def test_every_key_has_an_effect_or_is_refused(walk):
    walk.check("unidec-cpu", every=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*list_recipes(), *FILES])
def test_every_key_of_all_recipes_has_an_effect_or_is_refused(name, walk):
    walk.check(name)
