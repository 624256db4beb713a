"""The choice of an index, and its one-line summary."""

import re

import pytest
import torch

from megalabel.errors import DataError, SettingError
from megalabel.index import ExactIndex, HnswIndex, IvfIndex, choose_index, recall


@pytest.fixture(scope="module")
def world(make):
    return make(2_000, 16, 400)


@pytest.mark.parametrize(("kind", "cls"), [("hnsw", HnswIndex), ("ivf", IvfIndex)])
def test_named_kinds_are_tuned_and_summarised_in_one_line(world, kind, cls):
    vectors, queries = world
    choice = choose_index(vectors, queries, kind, at_least=0.97)
    assert isinstance(choice.index, cls) and choice.kind == kind
    assert choice.recall >= 0.97
    assert recall(choice.index, ExactIndex(vectors), queries, 10) > 0.9
    line = rf"{kind} \(\w+ \d+\) over 2,000 labels: recall@10 \d\.\d+ on 256 queries, built in .* s, .* queries/s"
    assert re.match(line, str(choice))
    assert "\n" not in str(choice)


def test_the_smallest_sufficient_effort(make):
    vectors, queries = make(2_000, 16, 100, groups=1)
    low, high = (choose_index(vectors, queries, "ivf", at_least=share).index.effort for share in (0.3, 1.0))
    assert low < high


def test_settings_are_kept(make):
    choice = choose_index(*make(2_000, 16, 100, groups=1), "ivf", nprobe=1, nlist=20)
    assert choice.index.settings()["nprobe"] == 1
    assert choice.recall < 0.9


def test_exact(world):
    choice = choose_index(*world, "exact")
    assert isinstance(choice.index, ExactIndex) and choice.recall == 1.0
    assert "asked for" in str(choice)


def test_auto_keeps_exact_search_if_it_is_fast(world):
    choice = choose_index(*world, searches=1_000)
    assert choice.kind == "exact"
    assert "looking at every label" in choice.why


def slow(monkeypatch, seconds):
    """Let each exact search seem to take so long, and each other nothing much."""
    import importlib

    module = importlib.import_module("megalabel.index.choose_index")
    monkeypatch.setattr(module, "_seconds", lambda index, queries, k: seconds[isinstance(index, ExactIndex)])


def test_auto_takes_lists_if_they_are_faster(world, monkeypatch):
    slow(monkeypatch, {True: 0.01, False: 0.0001})
    choice = choose_index(*world, searches=100_000)
    assert choice.kind == "ivf"
    assert "exact 1000 s" in choice.why


def test_auto_stays_exact_if_lists_save_no_time(world, monkeypatch):
    slow(monkeypatch, {True: 0.01, False: 0.02})
    choice = choose_index(*world, searches=100_000)
    assert choice.kind == "exact"
    assert "ivf takes 200" in choice.why


def test_auto_builds_nothing_for_few_searches(world, monkeypatch):
    slow(monkeypatch, {True: 0.1, False: 0.0001})
    choice = choose_index(*world, searches=150)
    assert choice.kind == "exact"
    assert "clustering takes about" in choice.why


def test_auto_keeps_codes_of_millions_of_labels(world, monkeypatch):
    import importlib

    slow(monkeypatch, {True: 0.01, False: 0.0001})
    monkeypatch.setattr(importlib.import_module("megalabel.index.choose_index"), "_MILLIONS", 2_000)
    assert choose_index(*world, searches=100_000).index.settings()["pq"] == 2


def test_recall_at_another_k(world):
    choice = choose_index(*world, "ivf", k=30)
    assert choice.k == 30 and "recall@30" in str(choice)


def test_without_queries_the_summary_says_so(world):
    assert "no queries were given" in str(choose_index(world[0], kind="ivf"))


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"kind": "hnws"}, SettingError, "did you mean 'hnsw'"),
        ({"kind": "auto", "M": 3}, SettingError, "name the kind"),
        ({"searches": 0}, SettingError, "searches"),
        ({"at_least": 1.5}, SettingError, "at_least"),
        ({"k": 0}, SettingError, "k must"),
        ({"kind": "ivf", "M": 3}, SettingError, "no setting 'M'"),
        ({"queries": torch.empty(0, 2)}, DataError, "no queries"),
    ],
)
def test_bad_input(more, error, words):
    with pytest.raises(error, match=words):
        choose_index(torch.eye(2), **more)
