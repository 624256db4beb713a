"""The generated tables of systems show the measured rows."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
tables = import_module("_quality")
sys.path.remove(str(ROOT / "docs"))


def table(head, lines):
    return "\n".join("|".join(line) for line in [head, *lines]) + "\n"


def row(system, role, value, seed=0, **more):
    figures = dict.fromkeys(tables.NAMES, value)
    costs = {"fit_seconds": 1234.4, "fit_cpu_seconds": 2100.0, "peak_mb": 567.0, "parameters": 2_500_000}
    origin = {"data": "set", "threads": 2, "date": "2026-01-02", "machine": {"cores": 2}, "commit": "abc"}
    origin["settings"] = {"recipe": system, "changes": []}
    return {"system": system, "role": role, "seed": seed, **figures, **costs, **origin, **more}


def lines_of(rows):
    text = tables.quality_text({"set": rows}, table, lambda document: "here")
    return [line.split("|") for line in text.splitlines() if "|" in line], text


def test_flagship_first_then_ours_then_peers_best_in_bold():
    rows = [
        row("low peer", "peer", 10.0),
        row("peer", "peer", 30.0, **{"P@1": 60.0}),
        row("ours", "ours", 20.0),
        row("auto", "flagship", 40.126),
    ]
    (head, *actual), text = lines_of(rows)
    assert head == ["system", *tables.NAMES, "fit, s", "CPU s", "peak MB", "parameters"]
    assert [line[0] for line in actual] == ["`auto`", "`ours`", "peer", "low peer"]
    assert actual[0][1:3] == ["40.13", "**40.13**"]
    assert actual[2][1:3] == ["**60.00**", "30.00"]
    assert actual[1][-4:] == ["1,234", "2,100", "567", "2.5 M"]
    assert "Seeds: 0; threads: 2; here." in text


def test_several_seeds_are_mean_and_spread():
    rows = [row("auto", "flagship", value, seed) for seed, value in enumerate((60.0, 60.2, 60.4))]
    rows.append(row("peer", "peer", 50.0, parameters=None, date="2026-01-03", commit="def"))
    (_, first, second), text = lines_of(rows)
    assert first[1] == "**60.2 ± 0.2**"
    assert second[1] == "50.00"
    assert second[-1] == "-"
    assert "Seeds: 0 or 0, 1, 2; threads: 2; measured 2026-01-02 to 2026-01-03; here." in text
    assert text.endswith("here. Rows were run at the commits abc, def.\n")


def test_short_table_sets_the_flagship_against_the_best_peer_on_each_metric():
    peers = [row("a", "peer", 10.0, **{"P@1": 70.0}), row("b", "peer", 20.0)]
    documents = {"set": [row("auto", "flagship", 40.0), *peers], "other": peers}
    _, own, best = tables.quality_short_text(documents, table).splitlines()
    assert own == "set|`auto`|40.00|**40.00**|**40.00**|**40.00**"
    assert best == "|best of 2 others on each metric|**70.00**|20.00|20.00|20.00"


def test_costs_are_those_of_the_flagship_cheapest_first():
    dear = [row("auto", "flagship", 40.0, fit_cpu_seconds=3600.0), row("b", "peer", 20.0)]
    documents = {"dear": dear, "peers": [row("b", "peer", 20.0)], "set": [row("auto", "flagship", 40.0)]}
    text = tables.cost_text(documents, table, lambda document: "here")
    assert text.startswith(
        "data|processor minutes|peak MB|weights|at 4 bytes each\nset|35.0|567|2.5 M|10 MB\ndear|60.0|"
    )
    assert text.endswith("Seeds: 0; threads: 2; here.\n")


def test_a_missed_target_is_reported():
    documents = {"set": [row("auto", "flagship", 40.0), row("peer", "peer", 10.0)]}
    aims = {"set": {"name": "our aim", "P@1": 41.5, "P@5": 39}}
    text = tables.quality_text(documents, table, lambda document: "here", aims)
    assert "\n*our aim*|41.50||39.00|" in text
    assert text.endswith("here. `auto` misses the last line: P@1 by 1.5.\n")
    reached = tables.quality_text(documents, table, lambda document: "here", {"set": {"name": "our aim", "P@1": 40}})
    assert reached.endswith("here.\n") and "our aim" in reached
    short = tables.quality_short_text(documents, table, aims)
    assert short.endswith("|10.00\n\nOn set `auto` misses our target: P@1 by 1.5.\n")
    assert "aimed" not in tables.quality_short_text(documents, table, {"set": {"name": "our aim", "P@1": 40}})


def test_rows_are_read_from_lists(tmp_path):
    actual = row("auto", "flagship", 40.0)
    (tmp_path / "set.json").write_text(json.dumps([actual]))
    assert tables.load_quality(tmp_path) == {"set": [actual]}


def test_variants_have_their_own_table():
    changed = {"settings": {"recipe": "auto", "changes": ["training.refit=false"]}}
    rows = [row("auto", "flagship", 40.0), row("auto, changed", "ours", 50.0, commit="def", **changed)]
    said = lambda document: document["machine"]["commit"]  # noqa: E731
    assert "changed" not in tables.quality_text({"set": rows}, table, said)
    _, first, second, _, under = tables.variants_text({"set": rows, "plain": rows[:1]}, table, said).splitlines()
    assert first.startswith("set|`auto`|40.00|")
    assert second.startswith("|`auto, changed`|50.00|")
    assert second.endswith("|2|1,234|2,100|567|2.5 M")
    assert under == "Seeds: 0; threads: 2; def."
    assert "\nSeeds: 0; threads" in tables.variants_text({"set": rows, "other": rows}, table, said)


@pytest.mark.parametrize("folder", ["missing", "."])
def test_missing_measurements_are_reported(tmp_path, folder):
    documents = tables.load_quality(tmp_path / folder)
    assert tables.quality_text(documents, table, str) == tables.NOTHING
    assert tables.quality_short_text(documents, table) == tables.NOTHING
    assert tables.cost_text(documents, table, str) == tables.NOTHING
    assert tables.variants_text(documents, table, str) == tables.NOTHING
