"""The table of questions with several documents: long runs before short ones, differences with intervals."""

import sys
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
tables = import_module("_rag")
sys.path.remove(str(DOCS))


def table(head, lines):
    assert all(len(line) == len(head) for line in lines)
    return "\n".join("|".join(line) for line in [head, *lines]) + "\n"


def row(name, value, *, seed=0, long=True):
    complete = {k: {"several": {"questions": 7, "complete": value}} for k in ("5", "10")}
    made = {"name": name, "data": "a-set", "seed": seed, "recipe": "dexml-cpu", "complete": complete}
    return made | {
        "changes": [tables.EPOCHS] if long else [],
        "metrics": {"P@1": 1.0, "R@10": 2.0},
        "cpu_seconds": 9.0,
    }


def text_of(rows):
    return tables.rag_text({"rows": rows}, table, "here", lambda better, worse, k: (-float(k), float(k)))


def test_short_runs_are_shown_alone_and_called_what_they_are():
    short = [row("DS", 50.0, long=False), row("InfoNCE", 51.0, long=False)]
    text = text_of(short)
    assert "five epochs" in text and "softmax|0|51.00" in text and "InfoNCE" not in text
    text = text_of([*short, row("DS", 60.0)])
    assert "20 epochs" in text and "51.00" not in text


def test_differences_are_on_the_seeds_of_both():
    rows = [row("DS", 60.0 + seed, seed=seed) for seed in range(3)] + [row("SoftTop-10", 64.0, seed=1)]
    text = text_of(rows)
    assert "SoftTop-10|+3.0 (-5.0 to +5.0)|+3.0 (-10.0 to +10.0)" in text
    assert "DS|0, 1, 2|61.0 ± 1.0" in text
