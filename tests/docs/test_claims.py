import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def claims():
    sys.path.insert(0, str(DOCS))
    try:
        import _claims
    finally:
        sys.path.remove(str(DOCS))
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


def test_every_claim_names_a_study_that_is_there(claims):
    for each in (claim for several in claims.CLAIMS.values() for claim in several):
        assert (DOCS.parent / "results" / f"{each.study}.json").is_file(), each
        assert (DOCS / each.link.split("(")[1].split("#")[0]).is_file(), each
