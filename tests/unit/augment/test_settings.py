import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from megalabel.augment.settings import AUGMENTATIONS, AugmentSettings
from megalabel.data import Dataset

ADAPTER = TypeAdapter(AugmentSettings)
ROWS = [("red shoe", [0, 1]), ("blue hat", [1, 2]), ("green shoe", [0]), ("old hat", [2, 1])]


@pytest.fixture
def data():
    return Dataset.from_lists(ROWS, [("hat", [1])], ["a shoe", "a hat", "a cap"])


def token_table(source):
    return [[1, 0], [0.9, 0.1], [0, 1], [0.1, 1]], ["shoe", "boot", source, "cap"]


@pytest.mark.parametrize("kind", AUGMENTATIONS)
def test_planned_rows_equal_actual_rows(data, kind):
    settings = ADAPTER.validate_python({"kind": kind} | ({"source": "hat"} if kind == "synonyms" else {}))
    rows = settings.apply(data, seed=0, token_table=token_table).train
    assert len(rows) == settings.count_rows(len(data.train), len(data.labels))
    assert ADAPTER.validate_python(ADAPTER.dump_python(settings)) == settings


@pytest.mark.parametrize(
    "changes", [{"rows": 2}, {"rows": "train"}, {"rows_kept": "labels"}, {"share": 0.34}, {"rows_kept": "both"}]
)
def test_planned_rows_of_gandalf(data, changes):
    settings = ADAPTER.validate_python(changes)
    rows = settings.apply(data, seed=0, token_table=token_table).train
    assert len(rows) == settings.count_rows(len(data.train), len(data.labels))


@pytest.mark.parametrize(
    "changes",
    [
        {"share": 0.5, "sample": "tail"},
        {"targets": "self", "below_delta": "mask", "graph": "walk"},
        {"max_targets": 1, "below_delta": "mask", "graph": "walk"},
        {"max_targets": None, "below_delta": "mask"},
        {"delta": 0, "below_delta": "mask"},
        {"delta": 0, "max_targets": None, "targets": "calibrated", "below_delta": "mask"},
        {"known": "ignore", "graph": "shared_counts"},
        {"targets": "calibrated", "graph": "shrunk_counts"},
        {"targets": "self", "delta": 0.1},  # the default may be written down
    ],
)
def test_settings_that_have_an_effect(changes):
    settings = ADAPTER.validate_python(changes)
    assert settings.kind == "gandalf"
    assert all(getattr(settings, name) == value for name, value in changes.items())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sample": "tail"}, "sample has no effect: share is 1"),
        ({"targets": "self", "known": "ignore"}, "known has no effect: targets is self"),
        ({"targets": "calibrated", "max_targets": 1}, "targets: calibrated has no effect: max_targets is 1"),
        ({"known": "merged"}, "Input should be 'merge' or 'ignore'"),
        ({"targets": "self", "delta": 0.2}, "delta has no effect: targets is self"),
        ({"targets": "self", "max_targets": 3}, "max_targets has no effect: targets is self"),
        ({"targets": "self", "graph": "walk"}, "graph has no effect: targets is self and below_delta is negative"),
        ({"max_targets": 1, "delta": 0.2}, "delta has no effect: max_targets is 1"),
        ({"max_targets": 1, "graph": "walk"}, "graph has no effect: max_targets is 1"),
        ({"delta": 0, "max_targets": None, "below_delta": "mask"}, "below_delta has no effect"),
        ({"most": 3}, "'most' is now called 'max_targets'"),
        ({"low": "mask"}, "'low' is now called 'below_delta'"),
        ({"keep": "labels"}, "'keep' is now called 'rows_kept'"),
        ({"kind": "mixup", "delta": 0.2}, "unknown key 'delta'; choose one of: kind, share, alpha"),
        ({"kind": "mixup", "alpha": 0}, "greater than 0"),
        ({"kind": "label_mixup", "words": 0.2}, "unknown key 'words'"),
        ({"kind": "synonyms", "source": "minilm", "tops": 3}, "did you mean 'top'?"),
        ({"kind": "mixups"}, "did you mean 'mixup'?"),
        ({"share": 0}, "greater than 0"),
    ],
)
def test_settings_that_are_refused(changes, words):
    with pytest.raises(ValidationError) as error:
        ADAPTER.validate_python(changes)
    assert words in error.value.errors()[0]["msg"]


BASES = [
    {},
    {"share": 0.5},
    {"targets": "self"},
    {"targets": "self", "below_delta": "mask"},
    {"targets": "glas"},
    {"targets": "calibrated", "delta": 0.05},
    {"known": "ignore"},
    {"max_targets": 1},
    {"max_targets": 1, "below_delta": "mask"},
    {"delta": 0, "max_targets": None},
    {"below_delta": "mask"},
    {"kind": "mixup"},
    {"kind": "label_mixup"},
    {"kind": "synonyms", "source": "hat"},
]
OTHERS = {
    "share": 0.6, "sample": "tail", "targets": "glas", "graph": "walk", "delta": 0.4, "max_targets": 2,
    "known": "ignore",
    "below_delta": "mask", "rows_kept": "labels", "rows": 7, "alpha": 0.1, "words": 1.0, "top": 1, "source": "cap",
}  # fmt: skip


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(0)
    truth = rng.random((60, 20)) < np.linspace(0.4, 0.1, 20)
    words = ["shoe", "boot", "hat", "cap"]
    rows = [(" ".join(rng.choice(words, 8)), np.flatnonzero(row).tolist()) for row in truth]
    rows += [(f"label {i}", np.flatnonzero(rng.random(20) < 0.2).tolist()) for i in range(6)]
    return Dataset.from_lists(rows, [("hat", [1])], [f"label {i}" for i in range(20)])


def rows_of(settings, data):
    def table(source):
        vectors = np.array([[1, 0], [0.9, 0.3], [0.2, 1], [0.4, 1]])
        return vectors if source == "hat" else vectors[[2, 0, 1, 3]], ["shoe", "boot", "hat", "cap"]

    train = settings.apply(data, seed=0, token_table=table).train
    return list(train.texts), list(train.uids), train.targets.toarray().tolist(), train.filter.tolist()


@pytest.mark.parametrize("base", BASES, ids=str)
def test_a_setting_changes_the_rows_or_is_refused(large, base):
    first = ADAPTER.validate_python(base)
    for name in type(first).model_fields.keys() - {"kind"} - base.keys():
        try:
            changed = ADAPTER.validate_python(base | {name: OTHERS[name]})
        except ValidationError as error:
            assert "has no effect" in str(error)
            continue
        assert rows_of(changed, large) != rows_of(first, large), name
