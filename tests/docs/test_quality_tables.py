"""The tables of systems side by side say what the rows say."""

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
    origin = {"data": "set", "threads": 2, "date": "2026-01-02"}
    return {"system": system, "role": role, "seed": seed, **figures, **costs, **origin, **more}


def lines_of(rows):
    text = tables.quality_text({"set": {"rows": rows}}, table, lambda document: "here")
    return [line.split("|") for line in text.splitlines() if "|" in line], text


def test_flagship_first_then_ours_then_peers_best_in_bold():
    rows = [
        row("low peer", "peer", 10.0),
        row("peer", "peer", 30.0, **{"P@1": 60.0}),
        row("ours", "ours", 20.0),
        row("auto", "flagship", 40.126),
    ]
    (head, *found), text = lines_of(rows)
    assert head == ["system", *tables.NAMES, "fit, s", "CPU s", "peak MB", "parameters"]
    assert [line[0] for line in found] == ["`auto`", "`ours`", "peer", "low peer"]
    assert found[0][1:3] == ["40.13", "**40.13**"]
    assert found[2][1:3] == ["**60.00**", "30.00"]
    assert found[1][-4:] == ["1,234", "2,100", "567", "2.5 M"]
    assert "Seeds: 0; threads: 2; here." in text


def test_several_seeds_are_mean_and_spread():
    rows = [row("auto", "flagship", value, seed) for seed, value in enumerate((60.0, 60.2, 60.4))]
    rows.append(row("peer", "peer", 50.0, parameters=None, date="2026-01-03"))
    (_, first, second), text = lines_of(rows)
    assert first[1] == "**60.2 ± 0.2**"
    assert second[1] == "50.00"
    assert second[-1] == "-"
    assert "Seeds: 0 or 0, 1, 2; threads: 2; measured 2026-01-02 to 2026-01-03; here." in text


def test_short_table_sets_the_flagship_against_the_best_peer_on_each_metric():
    peers = [row("a", "peer", 10.0, **{"P@1": 70.0}), row("b", "peer", 20.0)]
    documents = {"set": {"rows": [row("auto", "flagship", 40.0), *peers]}, "other": {"rows": peers}}
    _, own, best = tables.quality_short_text(documents, table).splitlines()
    assert own == "set|`auto`|40.00|**40.00**|**40.00**|**40.00**|1,234|2,100|567"
    assert best == "|best of 2 peers on each metric|**70.00**|20.00|20.00|20.00|||"


def test_a_missed_aim_is_said():
    documents = {"set": {"rows": [row("auto", "flagship", 40.0), row("peer", "peer", 10.0)]}}
    aims = {"set": {"name": "our aim", "P@1": 41.5, "P@5": 39}}
    text = tables.quality_text(documents, table, lambda document: "here", aims)
    assert "\n*our aim*|41.50||39.00|" in text
    assert text.endswith("here. `auto` misses the last line: P@1 by 1.5.\n")
    reached = tables.quality_text(documents, table, lambda document: "here", {"set": {"name": "our aim", "P@1": 40}})
    assert reached.endswith("here.\n") and "our aim" in reached


def test_rows_are_read_from_lists(tmp_path):
    found = row("auto", "flagship", 40.0, machine={"cores": 2, "processor": "some"}, commit="abc")
    (tmp_path / "set.json").write_text(json.dumps([found]))
    machine = {"cores": 2, "processor": "some", "date": "2026-01-02", "commit": "abc"}
    assert tables.load_quality(tmp_path) == {"set": {"rows": [found], "machine": machine}}


@pytest.mark.parametrize("folder", ["missing", "."])
def test_nothing_measured_is_said(tmp_path, folder):
    documents = tables.load_quality(tmp_path / folder)
    assert tables.quality_text(documents, table, str) == tables.NOTHING
    assert tables.quality_short_text(documents, table) == tables.NOTHING
