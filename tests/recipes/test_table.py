"""The table of all recipes: a row per stage, with what is trained in it."""

from megalabel.recipes import list_recipes
from megalabel.recipes.table import COLUMNS, recipe_rows


def cells(name):
    return [dict(zip(COLUMNS, row, strict=True)) for row in recipe_rows([name])]


def test_every_recipe_has_a_row_for_each_stage():
    rows = recipe_rows()
    assert [row[0] for row in rows if row[0]] == list_recipes()
    assert all(len(row) == len(COLUMNS) for row in rows)


def test_parts_that_are_not_trained_are_in_brackets():
    siamese, extreme = cells("ngame")
    assert (siamese["stage"], siamese["encoder"], siamese["heads"]) == ("siamese", "transformer", "text")
    assert (extreme["encoder"], extreme["heads"]) == ("(transformer)", "(text) + text_free")
    assert (siamese["labels per step"], extreme["labels per step"]) == ("in batch", "candidates + 300 mined")
    assert (siamese["predict"], extreme["predict"]) == ("tree", "")


def test_prediction_and_published_figures():
    (dexml,) = cells("dexml")
    assert (dexml["labels per step"], dexml["predict"]) == ("all labels", "its head")
    assert dexml["published"].endswith(" sets")
    (auto,) = cells("auto")
    assert (auto["predict"], auto["published"]) == ("fusion", "-")
    assert cells("siamesexml")[0]["positives"] == "one query a label"
    assert cells("siamesexml")[0]["predict"] == "sum, given weights"
    assert cells("astec")[0]["labels per step"] == "all clusters"
