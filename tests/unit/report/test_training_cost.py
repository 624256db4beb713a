"""What a training takes: counted by hand for small settings, growing where it must."""

import pytest

from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.report.training_cost import Sizes, training_cost

SIZES = Sizes(points=10_000, labels=5_000, labels_per_point=4.0, words=10.0, label_words=5.0)


def test_all_labels_are_read_in_every_step():
    cost = training_cost(load_recipe("dexml", ["batching.batch_size=1000", "training.epochs=2"]), SIZES)
    assert cost.steps == 20
    assert cost.texts == 20 * (1000 + 5000)
    assert cost.label_bytes == 2 * 4 * 5000 * 768
    products = 20 * 2 * 1000 * 5000 * 768 * 4
    assert cost.operations == pytest.approx(20 * 4 * (1000 * 16 + 5000 * 9) * 9e7 + products)


def test_a_pool_is_cut_to_its_cap_and_free_heads_read_no_labels():
    change = ["batching.batch_size=1000", "training.epochs=1", "batching.cap=700"]
    assert training_cost(load_recipe("depsl", change), SIZES).texts == 10 * (1000 + 700)
    free = ["heads={classifier: {kind: free, loss: {kind: bce}}}", *change[:2]]
    assert training_cost(load_recipe("depsl", free), SIZES).texts == 10 * 1000


def test_stages_count_too():
    recipe = load_recipe("astec-cpu")
    one = training_cost(recipe.model_copy(update={"stages": []}), SIZES)
    assert training_cost(recipe, SIZES).steps == one.steps * 2  # three epochs each


@pytest.mark.parametrize("name", list_recipes())
def test_more_points_cost_more(name):
    recipe = load_recipe(name)
    once, twice = (training_cost(recipe, Sizes(points, 5_000)) for points in (10_000, 20_000))
    assert 0 < once.operations < twice.operations
    assert once.hours(2) == once.hours(1) / 2
