"""The ablations: every row is a valid recipe of its own, a run shared by tables is one row, tables name them all."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from megalabel.errors import SettingError
from megalabel.recipes.load_recipe import load_recipe

ROOT = Path(__file__).parents[3]
for folder in ("benchmarks", "docs"):
    sys.path.insert(0, str(ROOT / folder))
ablations = import_module("ablations")
rows = import_module("_rows")
docs = import_module("_ablations")
for folder in ("benchmarks", "docs"):
    sys.path.remove(str(ROOT / folder))

RECIPES = {row.name: load_recipe(row.recipe, row.changes) for row in ablations.ROWS}


def test_no_run_is_repeated():
    digests = {row.name: rows.digest(row) for row in ablations.ROWS}
    assert len(digests) == len(ablations.ROWS)
    assert len(set(digests.values())) == len(digests)


def test_rows_of_a_table_train_as_long_as_each_other():
    for table in ablations.TABLES.values():
        trained = [RECIPES[row.name] for row in table if "untrained" not in row.name]
        lengths = {(recipe.training.epochs, recipe.batching.batch_size) for recipe in trained}
        assert len(lengths) == 1


@pytest.mark.parametrize("name", sorted(docs.TABLES))
def test_page_and_study_name_the_same_runs(name):
    assert {line.row for line in docs.TABLES[name].lines} == {row.name for row in ablations.TABLES[name]}


def test_rows_are_what_they_are_called():
    assert RECIPES["DEXML, SoftTop-100"].heads["dual"].loss.k == 100
    assert RECIPES["DEXML, BCE, bias"].heads["dual"].bias
    hard = RECIPES["DEXML, in batch + 10 hard"].batching
    assert (hard.labels, hard.positives.pick, hard.negatives.mined, hard.negatives.top) == ("pool", "one", 10, 100)
    grid = RECIPES["DePSL, beta 5, eta 0"].batching
    assert (grid.positives.count, grid.negatives.mined) == (5, 0)
    losses = {name: head.loss for name, head in RECIPES["UniDEC, DS / DS + BCE"].heads.items()}
    assert (losses["dual"].bce, losses["classifier"].bce, losses["classifier"].kind) == (0, 1, "decoupled_softmax")
    assert RECIPES["DePSL, DS + sym"].heads["dual"].loss.symmetric == 0.5
    plain = RECIPES["UniDEC, DS / BCE, unnormalised, bias"].heads["classifier"]
    assert (plain.normalise, plain.search_normalise, plain.bias, plain.loss.kind) == (False, None, True, "bce")
    learnt = [head.temperature for head in RECIPES["UniDEC, DS / DS, learnt temperature"].heads.values()]
    assert learnt[0] == learnt[1]
    assert (learnt[0].learn_as, learnt[0].share, round(1 / learnt[0].value)) == ("inverse", "both", 18)
    filled = RECIPES["UniDEC, no hard negatives, filled"].batching
    assert (filled.negatives.mined, filled.cap, filled.fill) == (0, 3000, "positives")
    assert [RECIPES[f"DEXML, SoftTop-5{name}"].heads["dual"].loss.alpha for name in (", alpha 1", "", ", alpha 4")] == [
        1, 2, 4,
    ]  # fmt: skip
    assert RECIPES["UniDEC, 2 x 192 numbers"].encoder.options.dim == 192


def test_each_head_of_the_flagship_is_removed_in_turn():
    whole = RECIPES["auto"]
    for head in ablations.removable():
        recipe = RECIPES[f"auto without {head}"]
        assert list(recipe.heads) == [name for name in whole.heads if name != head]
        read = [settings.features for settings in recipe.fitted_heads.values() if settings.kind == "memory"]
        assert all(name == "ngrams" or name in recipe.dense_heads for name in read)
        assert all(settings == whole.heads[name] for name, settings in recipe.heads.items())
        assert recipe.training == whole.training


def test_rows_are_chosen_by_name_or_by_table():
    assert ablations.chosen(None) is None
    assert ablations.chosen(["negatives", "DePSL, cap 500"]) == [
        "DEXML, in batch",
        "DEXML, in batch + 10 hard",
        "DEXML, decoupled softmax",
        "DePSL, cap 500",
    ]
    with pytest.raises(SettingError, match="there is no table or row 'loses'"):
        ablations.chosen(["loses"])


def table(head, lines):
    assert all(len(line) == len(head) for line in lines)
    return "\n".join("|".join(line) for line in [head, *lines]) + "\n"


def run(name, value, *, seed=0, data="set", digest="a", heads=("all",)):
    metrics = {head: dict.fromkeys((*docs.NAMES, "R@100"), value + place) for place, head in enumerate(heads)}
    pool = {"pool_size": 2345.6, "positives_per_query": 3.217, "positives_covered": 0.907}
    row = next(row for row in ablations.ROWS if row.name == name)
    return {"name": name, "data": data, "seed": seed, "digest": digest, "metrics": metrics, "cpu_seconds": 61.7,
            "peak_mib": 1234.5, "parameters": 2_500_000, "pool": pool, "commit": "0123456789ab", "threads": "1",
            "recipe": row.recipe, "changes": row.changes}  # fmt: skip


def text_of(name, actual):
    published = json.loads((ROOT / "results" / "published.json").read_text())
    return docs.ablation_text(name, {"rows": actual}, published, table, lambda document: "here")


def test_runs_that_are_missing_are_named_beside_the_paper():
    text = text_of("losses", [run("DEXML, BCE", 1.0), run("DEXML, softmax", 50.0)])
    lines = {line.split("|")[0]: line.split("|")[1:] for line in text.splitlines() if "|" in line}
    assert lines["BCE"] == ["1.00"] * 4 + ["62", "1,234", "0.10", "0.07", "1.84"]
    assert lines["SoftTop-5"] == ["not run", *[""] * 5, "83.42", "60.95", "91.30"]
    assert "seeds: 0; threads: 1; here. The paper's columns: Gupta et al." in text
    assert text_of("losses", [run("DEXML, BCE", 1.0)]) == docs.NOTHING
    assert docs.ablation_text("losses", None, {}, table, str) == docs.NOTHING


def test_seeds_are_averaged_and_only_the_last_settings_count():
    actual = [run("DEXML, BCE", 90.0, digest="old"), run("DEXML, softmax", 50.0)]
    actual += [run("DEXML, BCE", value, seed=seed) for seed, value in enumerate((10.0, 12.0))]
    assert "BCE|11.0 ± 1.4|" in text_of("losses", actual)


def test_a_run_with_two_heads_has_three_lines_and_its_costs_once():
    heads = ("all", "dual", "classifier")
    text = text_of("heads", [run(row.name, 40.0, heads=heads) for row in ablations.TABLES["heads"]])
    lines = [line.split("|") for line in text.splitlines() if line.startswith("with|")]
    assert [line[1:3] for line in lines] == [
        ["both heads", "40.00"],
        ["dual encoder alone", "41.00"],
        ["classifier alone", "42.00"],
    ]
    assert [line[6] for line in lines] == ["62", "", ""]


@pytest.mark.parametrize("name", sorted(docs.TABLES))
def test_every_table_can_be_filled(name):
    actual = [run(row.name, 40.0, heads=("all", "dual", "classifier")) for row in ablations.TABLES[name]]
    text = text_of(name, actual)
    assert docs.MISSING not in text
    published = json.loads((ROOT / "results" / "published.json").read_text())["ablations"].get(name, {"metrics": {}})
    assert set(published["metrics"]) <= {line.label for line in docs.TABLES[name].lines}
