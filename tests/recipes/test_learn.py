"""Every recipe file trains on a small real sample: the loss falls, and P@1 is far above chance."""

import json
from pathlib import Path

import numpy as np
import pytest

import megalabel as ml
import megalabel.recipes
from megalabel.__main__ import main
from megalabel.recipes import load_recipe
from megalabel.recipes.effects import mines_once
from megalabel.training.run_log import read_log

NAMES = sorted(path.stem for path in Path(megalabel.recipes.__file__).parent.rglob("*.yaml"))
LABELS = 60  # the slice: the labels of most points, and all points that have one of them
TIMES_CHANCE, TIMES_POPULAR = 8, 2

# What makes an encoder small, by its kind, and how many epochs it then takes; the rest is the recipe's own.
SMALL = {
    "bag": (["options={dim: 64, words: 4096, bigrams: 4096, characters: 4096}"], 6),
    "inceptionxml": (["options={token_dim: 128, filters: 16}"], 20),
    "transformer": (["source=minilm", "query_length=8", "label_length=8"], 2),
}
OWN = {  # rates and rhythms that are made for hundreds of thousands of steps
    "ance": [
        "stages.warmup.training.epochs=8",
        "stages.ance.training.encoder.lr=2e-5",
        "training.heads={kind: adamw, lr: 1e-3}",
    ],
    "lightxml": [
        "training.epochs=12",
        "training.averaging={start: 8, every_steps: 5}",
        "training.tables={kind: lazy_adamw, lr: 0.02}",
        "encoder.options={pooling: mean}",
    ],
    "elias": [
        "stages.links.training.epochs=8",
        "stages.links.training.averaging={start: 4, every_steps: 5}",
        "training.tables.lr=0.02",
        "training.evaluate_every=8",
        "encoder.options={pooling: mean}",
        "spaces.clusters.leaf=8",
        "spaces.words.leaf=8",
    ],
    "cascadexml": ["training.epochs=12", "training.tables.lr=0.02", "encoder.options={pooling: mean}"],
    "xr-transformer": [
        "training.epochs=6",
        "training.tables={kind: lazy_adamw, lr: 0.01}",
        "encoder.options={pooling: mean}",
    ],
    "inceptionxml-lf": ["encoders.label.options.dim=80", "heads.classifier.detach_epochs=5"],
    "inceptionxml-lf-cpu": ["encoders.label.options.dim=384"],
    "renee": ["training.epochs=8", "training.tables.lr=0.02", "heads.one_vs_all.query_dropout=0.2"],
}
OTHERS: tuple[list[str], int] = ([], 6)


def small(recipe):
    """Return the changes that make a recipe train within seconds."""
    changes = []
    for name, encoder in recipe.encoders.items():
        place = "encoder" if len(recipe.encoders) == 1 else f"encoders.{name}"
        known = SMALL.get(encoder.kind, OTHERS)[0]
        changes += [f"{place}.{change}" for change in known if _counts(change, encoder)]
    for name, head in recipe.dense_heads.items():
        if head.layer is not None:  # MiniLM has half as many
            taps = head.layer if isinstance(head.layer, tuple) else (head.layer,)
            changes.append(f"heads.{name}.layer={[max(1, tap // 2) for tap in taps]}")
    epochs = SMALL.get(recipe.encoder.kind, OTHERS)[1]
    for stage, staged in recipe.stage_recipes():
        batching, training = staged.batching, staged.training
        wanted = {"batching.batch_size": 32, "training.epochs": epochs, "training.evaluate_every": epochs}
        if getattr(batching.order, "double_at", ()):
            wanted["batching.order.double_at"] = [1]
        if batching.clusters or batching.mines:
            wanted["batching.refresh"] = {"start": 0} if mines_once(staged) else {"start": 0, "every": 1}
        if training.warmup_steps is not None:
            wanted["training.warmup_steps"] = 1
        if training.averaging is not None:
            wanted["training.averaging"] = {"start": 0, "every_steps": 1}
        if training.milestones:
            wanted["training.milestones"] = [epochs - 1]
        for key, value in wanted.items():
            section, name = key.split(".")[:2]
            own = name in getattr(stage, section)  # else it is the recipe's, for all stages
            changes.append(f"{f'stages.{stage.name}.' if own else ''}{key}={json.dumps(value)}")
    return list(dict.fromkeys(changes))


def _counts(change, encoder):
    """An encoder of labels alone reads no queries, and the other way round."""
    key = change.partition("=")[0]
    return not key.endswith("_length") or getattr(encoder, key) is not None


@pytest.fixture(scope="module")
def data():
    """The docstrings of numpy and their See Also, cut down."""
    whole = ml.load("pydocs:packages=numpy")
    kept = np.sort(np.argsort(-whole.counts, kind="stable")[:LABELS])
    place = np.full(len(whole.labels), -1)
    place[kept] = np.arange(LABELS)

    def cut(split):
        part = split.rows(np.flatnonzero(np.diff(split.targets[:, kept].indptr)))
        pairs = np.stack([part.filter[:, 0], place[part.filter[:, 1]]], axis=1)
        return type(part)(part.texts, part.targets[:, kept], part.uids, pairs[pairs[:, 1] >= 0])

    labels = type(whole.labels)([whole.labels.texts[i] for i in kept], [whole.labels.uids[i] for i in kept])
    return ml.Dataset(train=cut(whole.train), test=cut(whole.test), labels=labels, name="numpy docs")


def floor(data):
    """Return the P@1 that counts as learnt: so many times that of random scores and of the most frequent label."""
    chance = 100 * data.test.targets.nnz / len(data.test) / len(data.labels)
    popular = 100 * data.test.targets[:, int(data.counts.argmax())].nnz / len(data.test)
    return max(TIMES_CHANCE * chance, TIMES_POPULAR * popular)


def test_recipe_files_match_the_recipes_command(capsys):
    assert main(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert sorted(recipe["name"] for recipe in listed) == NAMES
    assert len(NAMES) >= 5
    assert all(recipe["paper"] for recipe in listed)


def test_random_scores_stay_below_the_floor(data):
    """No one of a thousand draws of random scores gets there."""
    rng = np.random.default_rng(0)
    truth = data.test.targets.toarray() > 0
    picks = rng.integers(len(data.labels), size=(1000, len(data.test)))
    assert 100 * truth[np.arange(len(data.test)), picks].mean(axis=1).max() < floor(data)


# One of each kind to begin with: all heads, two stages, three, a pool, all labels.
FIRST = {"auto", "unidec-cpu", "dexml-cpu", "ngame-cpu", "astec", "inceptionxml-cpu"}


def marked(name):
    return pytest.param(name, marks=[] if name in FIRST else pytest.mark.extra)


@pytest.mark.parametrize("name", [marked(name) for name in NAMES])
def test_recipe_learns(name, data, tmp_path):
    recipe = load_recipe(name)
    model = ml.train(name, data, tmp_path / "run", changes=[*small(recipe), *OWN.get(name, [])])
    steps = [row for row in read_log(tmp_path / "run" / "metrics.jsonl") if "loss" in row]
    start = [row["loss"] for row in steps if row["phase"] == steps[0]["phase"] and row["epoch"] == 0]
    for phase in {row["phase"] for row in steps} - {"select-ance"}:  # whose negatives get harder step by step
        own = [row for row in steps if row["phase"] == phase]
        losses = [[row["loss"] for row in own if row["epoch"] == epoch] for epoch in (0, own[-1]["epoch"])]
        if phase == "refit" and recipe.training.refit == "continue":  # one epoch, from where the other phase ended
            losses[0] = start
        first, last = map(np.mean, losses)
        assert last < first, phase
    assert model.evaluate(data).metrics["P@1"] > floor(data)
