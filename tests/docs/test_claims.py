import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def claims():
    sys.path.insert(0, str(DOCS))
    try:
        import _claims
        import _claims_list
    finally:
        sys.path.remove(str(DOCS))
    _claims.CLAIMS, _claims.listed = _claims_list.CLAIMS, _claims_list
    return _claims


def row(name, data, seed, value, head="all"):
    return {"name": name, "data": data, "seed": seed, "metrics": {head: {"P@1": value}}}


@pytest.fixture
def claim(claims):
    return claims.Claim("A is better", "2.0 / 1.0", "study", claims.Side("A"), claims.Side("B"), "P@1", "link")


@pytest.mark.parametrize(
    ("better", "worse", "verdict"),
    [
        ((51.2,), (50.0,), 1),
        ((50.9,), (50.0,), 0),  # one run may be a point off
        ((48.0, 47.0), (50.0, 50.0), -1),
        ((51.0, 51.1, 50.9), (50.5, 50.4, 50.6), 1),  # three seeds decide half a point
        ((52.0, 48.0, 51.0), (50.0, 47.0, 52.0), 0),
    ],
)
def test_a_difference_counts_beyond_chance(claims, better, worse, verdict):
    assert claims.Evidence("set", better, worse).verdict() == verdict


def test_one_run_is_level_if_other_test_texts_might_turn_it(claims):
    assert claims.Evidence("set", (62.0,), (60.0,), "", (-0.5, 4.5)).verdict() == 0
    assert claims.Evidence("set", (62.0,), (60.0,), "", (0.5, 3.5)).verdict() == 1
    assert claims.Evidence("set", (62.0, 62.1, 62.2), (60.0, 60.1, 60.2), "", (-0.5, 4.5)).verdict() == 1


def test_the_bootstrap_reads_the_hits_of_both_sides(claims, claim):
    hits = {"A": "AQEBAQ==", "B": "AAAAAA=="}  # four hits, and none
    rows = [row(name, "pydocs", 0, value) | {"hits": hits[name]} for name, value in (("A", 100.0), ("B", 0.0))]
    assert claims.evidence(claim, rows)[0].span == (100, 100)
    del rows[0]["hits"]
    assert claims.evidence(claim, rows)[0].span is None


def test_only_seeds_of_both_sides_are_compared(claims, claim):
    rows = [
        row("A", "pydocs", 0, 60.0),
        row("A", "pydocs", 1, 61.0),
        row("B", "pydocs", 1, 50.0),
        row("B", "x", 0, 1.0),
    ]
    (found,) = claims.evidence(claim, rows)
    assert (found.data, found.better, found.worse) == ("pydocs", (61.0,), (50.0,))
    assert found.text() == "pydocs: 61.0 / 50.0 (1 seed)"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "not measured yet"),
        ({"a": (60, 50), "b": (70, 60)}, "holds"),
        ({"a": (60, 50), "b": (60, 60), "c": (50, 60)}, "holds in part: on a; level on b; not on c"),
        ({"a": (50, 50)}, "not decided: level on a"),
        ({"a": (50, 50), "b": (40, 50)}, "does not hold: the opposite on b, level on a"),
        ({"a": (40, 50)}, "does not hold: the opposite on a"),
    ],
)
def test_verdict_over_sets(claims, claim, values, words):
    found = [claims.Evidence(data, (better,), (worse,)) for data, (better, worse) in values.items()]
    assert claims.judge(claim, found) == words


def test_the_longer_set_up_counts_and_the_two_are_not_mixed(claims, claim):
    long = [row(name, "pydocs", 0, value) | {"cpu_minutes": 20.0} for name, value in (("A", 60.0), ("B", 50.0))]
    short = [row(name, "pydocs", seed, value) for name, value in (("A", 30.0), ("B", 40.0)) for seed in (0, 1, 2)]
    (found,) = claims.evidence(claim, short + long)
    assert (found.better, found.worse, found.note) == ((60.0,), (50.0,), "")
    (found,) = claims.evidence(claim, short + long[:1])
    assert (found.better, found.note, found.seeds) == ((30.0, 30.0, 30.0), "earlier set-up", 3)
    assert claims.evidence(claim, [long[0], *short[3:]]) == []


def test_only_the_last_settings_of_a_name_count(claims, claim):
    rows = [row("A", "pydocs", seed, 90.0) | {"digest": "old"} for seed in (0, 1)]
    rows += [row("A", "pydocs", 0, 60.0) | {"digest": "new"}]
    rows += [row("B", "pydocs", seed, 50.0) for seed in (0, 1)]
    assert claims.evidence(claim, rows)[0].better == (60.0,)


def test_what_is_missing_is_said(claims, claim):
    def results(name):
        raise FileNotFoundError(name)

    elsewhere = claims.Claim("C", "9 / 8", "", claims.Side(""), claims.Side(""), "", "", why="the data is private")
    text = claims.claims_text({"paper": [claim, elsewhere]}, lambda head, lines: str(lines), results)
    assert text.startswith("2 claims: 1 not measured yet, 1 cannot be measured here.")
    assert "'not measured yet'" in text and "'cannot be measured here: the data is private'" in text


def test_what_other_studies_found(claims):
    listed = claims.listed
    curves = {"softmax": [{"easy_first": 80.0}, {"easy_first": 30.0}], "decoupled_softmax": [{"easy_first": 70.0}]}
    (found,) = listed.easy_one({"curves": {"inner_product": curves}})
    assert (found.data, found.better, found.worse) == ("made up, inner product", (70.0,), (30.0,))
    points = {
        loss: [{"label_deviation": d, "example_deviation": d}]
        for loss, d in (("softmax", 0.4), ("decoupled_softmax", 0.1))
    }
    one, two = listed.spread_of_gradients({"data": "set", "curves": points})
    assert (one.data, two.data, one.better, one.worse) == ("set, one label", "set, one point", (40.0,), (10.0,))
    rows = [{"pairs": 10, "recall@1": 99.0}, {"pairs": 1_000, "recall@1": 97.0}]
    assert listed.learnt_by_heart({"rows": rows})[0].better == (97.0,)
    assert listed.learnt_a_million({"rows": rows}) == []
    assert listed.learnt_a_million({"rows": [*rows, {"pairs": 1_000_000, "recall@1": 98.0}]})[0].better == (98.0,)
    rows = [{"recipe": "dexml-cpu", "way": "added", "data": "set", "labels": 500, "metrics": {"all": {"R@10": 70.0}}}]
    (found,) = listed.added_by_text({"rows": rows})
    assert (found.better, found.worse) == ((70.0,), (2.0,))


def test_every_claim_can_be_measured_by_a_study_or_says_why_not(claims):
    for each in (claim for several in claims.CLAIMS.values() for claim in several):
        if each.why:
            assert not each.study and not each.link
            continue
        assert (DOCS.parent / "results" / f"{each.study}.json").is_file(), each
        assert (DOCS / each.link.split("(")[1].split("#")[0].rstrip(")")).is_file(), each


def test_every_row_of_a_claim_is_a_row_of_its_study(claims):
    sys.path.insert(0, str(DOCS.parent / "benchmarks"))
    try:
        import ablations
        import gandalf
        import rag
        import systems
    finally:
        sys.path.remove(str(DOCS.parent / "benchmarks"))
    known = {
        "ablations": {row.name for row in ablations.ROWS},
        "gandalf": {row.name for row in gandalf.rows_of("pydocs")},
        "rag": set(rag.LOSSES),
        "systems": set(systems.SYSTEMS),
    }
    for each in (claim for several in claims.CLAIMS.values() for claim in several):
        if each.study in known:
            assert {each.better.name, each.worse.name} <= known[each.study], each.text
