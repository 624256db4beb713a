"""What a search may change."""

import numpy as np
import pytest

from megalabel.documents import parse_yaml
from megalabel.errors import SettingError
from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.tuning.space import Choice, Range, change_of, default_space, read_space

RECIPE = "unidec-cpu"


def draws(axis, count=200, near=None):
    generator = np.random.default_rng(0)
    return [axis.draw(generator) if near is None else axis.near(near, generator) for _ in range(count)]


def test_choice():
    axis = Choice((1, 2, 4, 8))
    assert set(draws(axis)) == {1, 2, 4, 8}
    assert set(draws(axis, near=4)) == {2, 8}
    assert set(draws(axis, near=1)) == {1, 2}
    assert set(draws(axis, near=3)) == {1, 2, 4, 8}  # no value of the list


def test_range_even_and_log():
    even, log = np.array(draws(Range(0.0, 1.0))), np.array(draws(Range(1e-4, 1e-2, log=True)))
    assert abs(np.median(even) - 0.5) < 0.1 and even.min() >= 0 and even.max() <= 1
    assert abs(np.median(np.log10(log)) + 3) < 0.2 and log.min() >= 1e-4 and log.max() <= 1e-2
    near = np.array(draws(Range(1e-4, 1e-2, log=True), near=1e-3))
    assert 10**-3.41 < near.min() < near.max() < 10**-2.59
    assert set(draws(Range(2, 5))) == {2, 3, 4, 5}


SOME = ("auto", "astec-cpu", "dexml-cpu", "unidec-cpu", "xr-transformer-cpu")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SOME else pytest.mark.extra) for name in list_recipes()]
)
def test_every_recipe_has_a_default_space_of_valid_values(name):
    space = default_space(name)
    assert any(key.endswith("lr") for key in space) and any(key.endswith("epochs") for key in space)
    for key, axis in space.items():
        for value in axis.checked():
            load_recipe(name, [change_of(key, value)])


def test_the_default_space_follows_changes():
    assert str(default_space(RECIPE, ["training.encoder.lr=1.0e-2"])["training.encoder.lr"]) == "0.002..0.05 log"


def test_changes_keep_their_type():
    for value in (3, 0.5, 1e-5, 12345678.0, True, None, "a b", [1, 2]):
        key, _, text = change_of("key", value).partition("=")
        assert key == "key"
        assert parse_yaml(text) == value and type(parse_yaml(text)) is type(value)


def test_read_values():
    space = read_space(
        ["batching.order=shuffled,clustered", "training.clip=null,1.0", "training.encoder.lr=1e-3"], RECIPE
    )
    assert [axis.values for axis in space.values()] == [("shuffled", "clustered"), (None, 1.0), (1e-3,)]
    space = read_space(["training.epochs=2..6", "training.warmup=0..0.5", "training.encoder.lr=1e-4..1e-2 log"], RECIPE)
    assert list(space.values()) == [Range(2, 6), Range(0, 0.5), Range(1e-4, 1e-2, log=True)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training.epocs=2,4", "'training.epocs'; did you mean 'epochs'"),
        ("trainig.epochs=2,4", "'trainig'; did you mean 'training'"),
        ("training.epochs", "is not key=values"),
        ("training.epochs=", "is not key=values"),
        ("training.epochs=two,4", "training.epochs is 'two'"),
        ("training.epochs=0..4", "greater than 0"),
        ("training.epochs=4..2", "the smaller number first"),
        ("training.epochs=1..x", "is no range"),
        ("training.epochs=1..9 lg", "is no range"),
        ("training.warmup=0..1 log", "begin above 0"),
        ("training.epochs=[", "this is not YAML"),
        ("predict.weights=fusion,validation", "cannot be compared"),
        ("training.select=P@1,P@5", "cannot be compared"),
        ("seed=1,2", "cannot be compared"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(SettingError) as error:
        read_space([text], RECIPE)
    assert message in str(error.value)


def test_heads_that_are_fitted_later_are_refused():
    with pytest.raises(SettingError, match="fitted after training"):
        read_space(["heads.linear.rounds=1,2"], "auto")
    with pytest.raises(SettingError, match="twice"):
        read_space(["training.epochs=1,2", "training.epochs=3"], RECIPE)
