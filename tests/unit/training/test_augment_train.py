import numpy as np
import pytest

import megalabel as ml
from megalabel.augment import gandalf, label_mixup, mixup
from megalabel.encoders._source import has_minilm
from megalabel.errors import SettingError
from megalabel.recipes import load_recipe
from megalabel.training.augment_train import augment_train


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=200,labels=30,seed=2")


def same(first, second):
    return (
        list(first.train.texts) == list(second.train.texts)
        and (first.train.targets != second.train.targets).nnz == 0
        and np.array_equal(first.train.filter, second.train.filter)
    )


@pytest.mark.parametrize("changes", [[], ["augment=none"], ["augment=null"], ["augment=gandalf", "augment=none"]])
def test_no_augmentation_changes_nothing(data, changes):
    recipe = load_recipe("unidec-cpu", changes)
    assert recipe.augment is None
    assert augment_train(recipe, data) is data


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["augment=gandalf"], lambda data: gandalf(data)),
        (["augment=gandalf", "augment.delta=0.3"], lambda data: gandalf(data, delta=0.3)),
        (["augment.delta=0.3"], lambda data: gandalf(data, delta=0.3)),
        (["augment={kind: gandalf, targets: glas}"], lambda data: gandalf(data, targets="glas")),
        (["augment.below_delta=mask"], lambda data: gandalf(data, below_delta="mask")),
        (["augment.rows=train", "seed=4"], lambda data: gandalf(data, rows="train", seed=4)),
        (["augment={share: 0.5, sample: tail}"], lambda data: gandalf(data, share=0.5, sample="tail")),
        (["augment=mixup", "augment.alpha=0.4"], lambda data: mixup(data, alpha=0.4)),
        (["augment=label_mixup", "augment.share=0.5"], lambda data: label_mixup(data, share=0.5)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_reach_the_function(data, changes, expected):
    assert same(augment_train(load_recipe("unidec-cpu", changes), data), expected(data))


@pytest.mark.skipif(not has_minilm(), reason="needs the package with MiniLM")
def test_synonyms_take_the_token_table_of_a_model():
    data = ml.Dataset.from_lists([("a large house near the river", [0])], [("t", [0])], ["A"])
    recipe = load_recipe("unidec-cpu", ["augment=synonyms", "augment.words=1", "augment.top=1"])
    text = augment_train(recipe, data).train.texts[1]
    assert text.split()[0] == "a"
    assert text.split()[1] in ("small", "big", "huge", "massive", "larger", "vast", "sizable")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["augment=gandlf"], "'gandalf'"),
        (["augment.delta_=0.2"], "did you mean 'delta'?"),
        (["augment.delta=1"], "augment.delta"),
        (["augment=mixup", "augment.delta=0.2"], "unknown key 'augment.delta'; choose one of: kind, share, alpha"),
        (["augment=gandalf", "augment.graph=walks"], "'walk'"),
        (["augment=[gandalf]"], "augment"),
        (["augment.delta.x=1", "augment=gandalf", "augment.kind.x=1"], "no keys"),
    ],
)
def test_wrong_settings_give_one_line(changes, words):
    with pytest.raises(SettingError) as error:
        load_recipe("unidec-cpu", changes)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_no_token_vectors(data):
    recipe = load_recipe("unidec-cpu", ["augment=synonyms", "augment.source=someone/model"])
    with pytest.raises(SettingError):
        augment_train(recipe, data)
