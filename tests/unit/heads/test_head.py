"""The registry of kinds, and keys that were renamed."""

import pytest
from pydantic import ValidationError

from megalabel.errors import SettingError
from megalabel.heads import HEADS, HeadSettings, register


def test_every_kind_is_registered_under_its_name():
    fitted = {"linear", "memory", "overlap", "tree"}
    trained = {"free", "gated", "graph", "neighbours", "shared", "text", "text_free"}
    assert fitted | trained <= set(HEADS)
    for kind, settings in HEADS.items():
        assert settings.model_fields["kind"].default == kind
    assert all(HEADS[kind].trained for kind in trained) and not any(HEADS[kind].trained for kind in fitted)
    assert {kind for kind in HEADS if HEADS[kind].has_table} >= {"free", "gated", "graph", "shared", "text_free"}
    reads = {kind for kind in HEADS if HEADS[kind].reads_text}
    assert reads >= {"gated", "graph", "neighbours", "shared", "text", "text_free"} and "free" not in reads


def test_a_kind_needs_a_name():
    class Nameless(HeadSettings):
        trained = False

    with pytest.raises(SettingError, match=r"Nameless\.kind needs a literal default"):
        register(Nameless)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("memory", "nearest", "neighbours"),
        ("memory", "of", "features"),
        ("memory", "common", "max_df"),
        ("linear", "most", "max_targets"),
        ("overlap", "half", "half_life"),
        ("text_free", "tower", "kind"),
        ("free", "start", "init"),
    ],
)
def test_old_keys_are_refused_with_the_new_name(kind, old, new):
    with pytest.raises(ValidationError, match=f"'{old}' is now called '{new}'"):
        HEADS[kind].model_validate({old: 1})


def test_targets_of_label_texts_are_those_of_gandalf():
    for kind in ("memory", "linear"):
        assert HEADS[kind](labels="gandalf", max_targets=5).max_targets == 5
        with pytest.raises(ValidationError, match="max_targets has no effect: labels is neither gandalf nor"):
            HEADS[kind](max_targets=5)
        with pytest.raises(ValidationError, match="known has no effect: labels is neither gandalf nor"):
            HEADS[kind](labels="self", known="ignore")
        with pytest.raises(ValidationError, match="labels: calibrated has no effect: max_targets is 1"):
            HEADS[kind](labels="calibrated", max_targets=1)


def test_frequent_n_grams_are_left_out_where_n_grams_are_compared():
    assert HEADS["memory"](max_df=0.2).max_df == 0.2
    with pytest.raises(ValidationError, match="max_df has no effect: features is dual, so vectors are compared"):
        HEADS["memory"](features="dual", max_df=0.2)


@pytest.mark.parametrize("kind", ["free", "text_free"])
def test_rows_are_dropped_in_training_only(kind):
    with pytest.raises(ValidationError, match="row_dropout has no effect: loss is null"):
        HEADS[kind](loss=None, row_dropout=0.2)
