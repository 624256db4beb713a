"""Tables of the Gandalf study: two set-ups apart, convergence, runs cut by the limit of time."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
tables = import_module("_label_rows")
sys.path.remove(str(DOCS))

PUBLISHED = {"gandalf": {"metrics": {"InceptionXML: walk": {"P@1": 43.52}}, "source": "the thesis"}}


def table(head, lines):
    assert all(len(line) == len(head) for line in lines)
    return "\n".join("|".join(line) for line in [head, *lines]) + "\n"


def curve(values):
    return [
        {"phase": "select", "epoch": place + 1, "step": place, "nDCG@5": value} for place, value in enumerate(values)
    ]


def row(name, value, *, seed=0, data="a-set", new=True, epochs=12, planned=12):
    names = (*tables.NAMES, "coverage@1", "coverage@3", "coverage@5")
    made = {
        **{"name": name, "data": data, "seed": seed, "recipe": "inceptionxml-cpu", "digest": name, "commit": "c0"},
        **{"steps": 30, "cpu_seconds": 61.7, "peak_mib": 700.0, "samples": [], "curve": curve([1.0, 2.0, 3.0])},
        "metrics": {"all": dict.fromkeys(names, value)},
    }
    if new:
        made |= {"cpu_minutes": 20.0, "epochs": {"main": epochs}, "planned": {"main": planned}}
        made["curve"] = curve([1.0, 5.0, 4.0, 4.5, 6.0, 3.0])
    return made


def texts(rows):
    return tables.study_text({"rows": rows}, PUBLISHED, table, "here", lambda better, worse: (-1.0, 2.0))


def test_set_ups_are_never_in_one_table():
    rows = [row(f"InceptionXML: {name}", 30.0, new=False) for name in ("D", "Z u D", "walk")]
    rows += [row(f"InceptionXML: {name}", value) for name, value in (("D", 50.0), ("Z u D", 51.0))]
    new, old = texts(rows)
    assert "InceptionXML: D|12|30|50.00" in new and "30.00" not in new and "walk" not in new
    assert "InceptionXML: walk|3|30|30.00" in old and "InceptionXML: D|" not in old


def test_close_lines_have_an_interval_and_seeds_a_deviation():
    rows = [row("InceptionXML: D", 50.0 + seed, seed=seed) for seed in range(3)]
    rows += [row("InceptionXML: Z u D", 51.0 + seed, seed=seed) for seed in range(2)]
    rows += [row("InceptionXML: Z1 u D", 70.0)]
    new, _ = texts(rows)
    assert "InceptionXML, Z u D - D: +1.00 (-1.00 to +2.00)" in new
    assert "Z u D - Z1" not in new
    assert "InceptionXML: D|12|30|51.0 ± 1.0|" in new
    assert "Seeds: 0, 1, 2" in new


def test_how_training_ended():
    assert tables.gain_of_last_third(curve([1.0, 5.0, 4.0, 4.5, 6.0, 3.0])) == 1.0
    assert tables.gain_of_last_third(curve([1.0, 5.0, 4.0])) == -1.0
    assert tables.gain_of_last_third(curve([1.0])) == 0.0
    stages = [{"phase": "one", "nDCG@5": 9.0}, {"phase": "two", "nDCG@5": 1.0}]
    assert tables.of_last_phase(stages) == stages[1:]
    new, _ = texts([row("InceptionXML: D", 50.0)])
    assert "InceptionXML: D|6|5.0|+1.00|+1.00" in new


@pytest.mark.parametrize(("epochs", "said"), [(12, "12"), (7, "7 of 12, cut")])
def test_a_run_that_was_cut_says_so(epochs, said):
    assert tables.epochs_text([row("InceptionXML: D", 50.0, epochs=epochs)]) == said


def test_nothing_measured_is_said():
    assert texts([]) == ("Nothing is measured yet.\n", "None.\n")
