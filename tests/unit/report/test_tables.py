from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.recipes import load_recipe
from megalabel.report.tables import (
    Table,
    bins_table,
    calibration_table,
    cost_table,
    metrics_table,
    recipe_diff,
    recipe_table,
    tail_table,
    threshold_table,
)

values = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.lists(st.integers(0, 3), max_size=2))
trees = st.recursive(values, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8)
recipes = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


def test_metrics_of_one_run_and_of_two(results):
    one, two = metrics_table(results[:1]), metrics_table(results)
    assert one.header[:3] == ["heads", "P@1", "P@3"]
    assert two.header[:3] == ["run", "heads", "P@1"]
    assert [row[1] for row in two.rows] == ["all", "dual", "classifier"] * 2
    for place, name in enumerate(two.header[2:], start=2):
        best = max(report["metrics"][name] for run in results for report in run.heads.values())
        strong = {two.rows[number][place] for number, column in two.strong if column == place}
        assert strong == {f"{best:.2f}"}


def test_bins_add_up(results):
    table = bins_table(results, "bins")
    place = table.header.index("P@5 <first>")
    assert abs(sum(float(row[place]) for row in table.rows) - results[0].best["metrics"]["P@5"]) < 0.03


def test_cost_has_time_and_memory_only_if_logged(results):
    keys = ("seconds", "texts", "memory_mb")
    plain = [
        replace(run, log=[{key: value for key, value in record.items() if key not in keys} for record in run.log])
        for run in results
    ]
    assert "training time" not in [row[0] for row in cost_table(plain).rows]
    log = [{**record, "seconds": 50.0 * record["step"], "texts": 64, "memory_mb": 2048} for record in results[0].log]
    table = cost_table([replace(results[0], log=log), plain[1]])
    assert table.header[1:] == [run.name for run in results]
    lines = {row[0]: row[1:] for row in table.rows}
    assert lines["training time"] == ["10.0 min", ""]
    assert lines["training, memory"][0] == "2.00 GiB"
    assert lines["best epoch"][1] in ("1", "2")
    assert float(lines["weight of dual"][0]) + float(lines["weight of classifier"][0]) == 1


def test_text_is_aligned_and_short():
    table = Table("t", ["name", "value"], [["a", "1.00"], ["long name", "10.00"]])
    assert table.text() == "name       value\na           1.00\nlong name  10.00"
    words = Table("t", ["key", "one"], [["stages", "x" * 500]], words=True)
    assert max(map(len, words.text().splitlines())) < 100


def test_html_escapes(results):
    html = Table("<c>", ["<h>"], [["<r>"]]).html()
    assert "<c>" not in html and "<h>" not in html and "<r>" not in html


def test_recipes(results):
    assert [row[0] for row in recipe_table(results).rows] == [
        "heads.dual.loss.kind", "training.epochs", "training.refit",
    ]  # fmt: skip


def test_tables_of_fused_models(results, fused_results):
    assert calibration_table(results) is None and tail_table(results) is None
    table = calibration_table([fused_results])
    assert table.header == ["probability, percent", "labels", "predicted", "observed"]
    assert sum(int(row[1].replace(",", "")) for row in table.rows) == fused_results.calibration["labels"]
    assert all(row[2:] == ["-", "-"] for row in table.rows if row[1] == "0")
    both = calibration_table([fused_results, results[0], replace(fused_results, name="again")])
    assert both.header[4:] == ["again labels", "again predicted", "again observed"]
    assert tail_table([fused_results]).header == ["tail", "P@1", "P@5", "PSP@1", "PSP@5"]
    assert [row[:2] for row in tail_table([results[0], fused_results]).rows][:2] == [
        ["<fused>", "0"],
        ["<fused>", "0.1"],
    ]


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


def test_differences_of_real_recipes():
    differences = recipe_diff(
        [load_recipe(name).model_dump(mode="json") for name in ("unidec-cpu", "dexml-cpu", "unidec-cpu")]
    )
    assert differences["name"] == ["unidec-cpu", "dexml-cpu", "unidec-cpu"]
    assert differences["heads.classifier"] == ["free", None, "free"]
    assert differences["batching.labels"] == ["pool", "all", "pool"]
    more = recipe_diff([load_recipe(name).model_dump(mode="json") for name in ("auto", "unidec-cpu")])
    assert [more[f"heads.{name}"] for name in ("memory", "linear", "label_words")] == [
        ["memory", None], ["linear", None], ["overlap", None],
    ]  # fmt: skip
    assert not {"about", "paper"} & set(differences)


def test_the_threshold_of_each_run_on_these_rows_and_on_validation(fused_results, results):
    table = threshold_table([*results, fused_results])
    assert table.header[:4] == ["run", "threshold", "chosen for", "rows"]
    assert [row[:1] + row[2:4] for row in table.rows] == [
        ["<fused>", "micro-f1", "test"],
        ["<fused>", "micro-f1", "validation"],
    ]
    sets = fused_results.best["threshold"]
    assert table.rows[0][table.header.index("micro F1")] == f"{sets['micro_f1']:.2f}"
    assert threshold_table(results) is None
