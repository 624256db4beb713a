from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.recipes import load_recipe
from megalabel.report.recipe_diff import recipe_diff

values = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.lists(st.integers(0, 3), max_size=2))
trees = st.recursive(values, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8)
recipes = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


@settings(max_examples=40)
@given(recipes)
def test_equal_recipes_do_not_differ(recipe):
    assert recipe_diff([recipe, recipe, recipe]) == {}


@settings(max_examples=40)
@given(recipes, recipes)
def test_only_what_differs_is_listed(one, other):
    for key, (first, second) in recipe_diff([one, other]).items():
        parts = [one, other]
        for name in key.split("."):
            parts = [part.get(name) for part in parts]
        assert parts[0] != parts[1]
        assert (first, second) == tuple(parts) or any(isinstance(part, dict) for part in parts)


def test_real_recipes():
    found = recipe_diff(
        [load_recipe(name).model_dump(mode="json") for name in ("unidec-cpu", "dexml-cpu", "unidec-cpu")]
    )
    assert found["name"] == ["unidec-cpu", "dexml-cpu", "unidec-cpu"]
    assert found["heads.classifier"] == ["free", None, "free"]
    assert found["batching.labels"] == ["pool", "all", "pool"]
    more = recipe_diff([load_recipe(name).model_dump(mode="json") for name in ("auto", "unidec-cpu")])
    assert more["fitted"] == ["words, linear, named, naming", None]
    assert not {"about", "paper"} & set(found)
