"""The Gandalf study: every row is a valid recipe and a run of its own, those of the paper in its exact form."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from megalabel.errors import SettingError
from megalabel.recipes.load_recipe import load_recipe

ROOT = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(ROOT))
study, rows = import_module("gandalf"), import_module("_rows")
sys.path.remove(str(ROOT))

SETS = list(study.LONG)


@pytest.fixture(scope="module")
def recipes():
    return {data: {row.name: load_recipe(row.recipe, row.changes) for row in study.rows_of(data)} for data in SETS}


@pytest.mark.parametrize("data", SETS)
def test_no_run_is_repeated(data):
    every = [row for name, _, part in study.plan() if name == data for row in part]
    digests = {(row.name, rows.digest(row)) for row in every}
    assert len({digest for _, digest in digests}) == len(digests) == len(study.rows_of(data))


def test_rows_of_the_paper_ignore_known_labels(recipes):
    for by_name in recipes.values():
        for name, recipe in by_name.items():
            if recipe.augment is not None and recipe.augment.kind == "gandalf" and recipe.augment.targets != "self":
                assert recipe.augment.known == ("merge" if "merged" in name else "ignore")
                assert recipe.augment.max_targets is None or "at most" in name or "Z1" in name


def test_lines_that_are_compared_train_as_long(recipes):
    def epochs(recipe):
        return [staged.training.epochs for _, staged in recipe.stage_recipes()]

    for by_name in recipes.values():
        for name, recipe in by_name.items():
            system, _, kind = name.partition(": ")
            times = 2 if "twice" in kind else 1
            assert epochs(recipe) == [times * count for count in epochs(by_name[f"{system}: D"])]


def test_every_base_has_its_three_lines_on_pydocs_and_manpages(recipes):
    for data in ("pydocs", "manpages"):
        for system in study.BASES:
            assert {f"{system}: {name}" for name in ("D", "Z1 u D", "Z u D")} <= recipes[data].keys()
    lf = [recipes["pydocs"][f"InceptionXML-LF: {name}"].augment.delta for name in ("delta 0", "Z u D", "delta 0.2")]
    assert lf == [0, 0.1, 0.2]


def test_renee_begins_with_ngame_and_adds_no_label_rows_to_d():
    after = {row.name: row for row in study.rows_of("pydocs") if row.name.startswith("NGAME")}
    assert all(row.after == study.NGAME for row in after.values())
    assert load_recipe("renee-cpu", after["NGAME + Renee: D"].changes).augment is None
    alone = rows.Row("Renee", "renee-cpu", after["NGAME + Renee: D"].changes)
    assert rows.digest(alone) != rows.digest(after["NGAME + Renee: D"])


def test_jobs_follow_the_plan():
    jobs = study.jobs_of(["some/manpages", "pydocs"], None, ["InceptionXML: D", "InceptionXML: Z1 u D"])
    assert [job.data for job in jobs] == ["pydocs"] * 6 + ["some/manpages"] * 9  # D comes a second time, and is one run
    assert [(job.seed, job.row.name) for job in jobs[:2]] == [(0, "InceptionXML: D"), (0, "InceptionXML: Z1 u D")]
    assert [job.seed for job in study.jobs_of(["pydocs"], [2, 5], ["UniDEC: D"])] == [2]
    with pytest.raises(SettingError, match="the plan has no data set 'eurlex'"):
        study.jobs_of(["x/eurlex"], None, None)
    with pytest.raises(SettingError, match="the plan has no row 'InceptionXM: D'"):
        study.jobs_of(["pydocs"], None, ["InceptionXM: D"])
