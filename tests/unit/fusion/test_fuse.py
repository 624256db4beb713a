import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from megalabel.errors import DataError, SettingError
from megalabel.fusion import Calibration, Fusion, expected_calibration_error

LABELS = 40


def make(seed=0, queries=400, width=12, weights=(1.0, 0.3), frequency=0.0, bias=-2.0):
    """Candidates and scores whose log-odds are a known sum, and targets drawn from it."""
    rng = np.random.default_rng(seed)
    candidates = np.sort(rng.random((queries, LABELS)).argsort(axis=1)[:, :width], axis=1)
    counts = rng.integers(1, 200, LABELS)
    scores = {f"head{h}": rng.normal(size=candidates.shape) for h in range(len(weights))}
    logits = bias + frequency * np.log1p(counts)[candidates]
    logits = logits + sum(weight * score for weight, score in zip(weights, scores.values(), strict=True))
    hit = rng.random(candidates.shape) < expit(logits)
    rows = np.nonzero(hit)[0]
    targets = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, candidates[hit])), shape=(queries, LABELS))
    return scores, candidates, targets, counts


def plain(*names):
    """A fusion that adds the scores as they are."""
    ones, zeros = (1.0,) * len(names), (0.0,) * len(names)
    return Fusion(names, zeros, zeros, ones, ones, zeros, zeros, 0.0, 0.0, 0.0, Calibration(1.0, 0.0))


def test_recovers_known_weights():
    scores, candidates, targets, counts = make(queries=4_000, weights=(1.0, 0.3), frequency=0.5, bias=-4.0)
    fusion = Fusion.fit(scores, candidates, targets, counts, hard=12, l2=1.0)
    np.testing.assert_allclose(np.add(fusion.weights, fusion.margins), [1.0, 0.3], atol=0.06)  # scales are about 1
    assert fusion.frequency == pytest.approx(0.5, abs=0.06)
    chance = fusion.probabilities(scores, candidates, counts)
    truth = targets.toarray()[np.arange(4_000)[:, None], candidates]
    assert expected_calibration_error(chance, truth) < 0.015


def test_hard_candidates_find_the_order_too():
    scores, candidates, targets, counts = make(queries=3_000, weights=(1.0, 0.2, 0.0))
    fusion = Fusion.fit(scores, candidates, targets, counts)
    sums = np.add(fusion.weights, fusion.margins)
    assert sums[0] > 2 * sums[1] > 0 and abs(sums[2]) < 0.15


@given(st.floats(0.01, 100), st.floats(-50, 50), st.integers(0, 100))
@settings(max_examples=15, deadline=None)
def test_scale_and_shift_of_a_head_do_not_matter(scale, shift, seed):
    scores, candidates, targets, counts = make(seed, queries=60)
    first = Fusion.fit(scores, candidates, targets, counts).probabilities(scores, candidates, counts)
    moved = {**scores, "head0": scale * scores["head0"] + shift}
    again = Fusion.fit(moved, candidates, targets, counts).probabilities(moved, candidates, counts)
    np.testing.assert_allclose(again, first, atol=1e-6)


def test_heads_in_another_order_give_the_same():
    scores, candidates, targets, counts = make(queries=100)
    turned = dict(reversed(scores.items()))
    first = Fusion.fit(scores, candidates, targets, counts).probabilities(turned, candidates, counts)
    again = Fusion.fit(turned, candidates, targets, counts).probabilities(scores, candidates, counts)
    np.testing.assert_allclose(again, first, atol=1e-9)


def test_a_single_head_keeps_its_order():
    scores, candidates, targets, _ = make(weights=(1.0,))
    counts = np.full(LABELS, 7)
    top = Fusion.fit(scores, candidates, targets, counts).rank(scores, candidates, counts, k=12)
    order = np.argsort(-scores["head0"], axis=1)
    np.testing.assert_array_equal(top.ids, np.take_along_axis(candidates, order, axis=1))
    assert (np.diff(top.scores, axis=1) <= 0).all()


def test_few_rows_give_nearly_equal_weights_and_many_do_not():
    scores, candidates, targets, counts = make(queries=2_000, weights=(1.2, 0.1))
    some = {name: score[:5] for name, score in scores.items()}
    few = Fusion.fit(some, candidates[:5], targets[:5], counts)
    many = Fusion.fit(scores, candidates, targets, counts)
    assert max(few.weights) < 1.5 * min(few.weights)
    assert max(many.weights) > 4 * min(many.weights)


def test_a_constant_head_has_no_influence():
    scores, candidates, targets, counts = make()
    wider = {**scores, "flat": np.full(candidates.shape, 0.1)}
    fusion = Fusion.fit(wider, candidates, targets, counts)
    assert fusion.weights[2] == pytest.approx(0, abs=1e-9) and fusion.margins[2] == pytest.approx(0, abs=1e-9)
    without = Fusion.fit(scores, candidates, targets, counts)
    np.testing.assert_allclose(
        fusion.probabilities(wider, candidates, counts), without.probabilities(scores, candidates, counts), atol=1e-6
    )


def test_missing_scores_count_as_the_lowest():
    scores, candidates, targets, counts = make()
    low = scores["head1"].min()
    short = np.where(scores["head1"] < 0, np.nan, scores["head1"])
    short.flat[np.nanargmin(short)] = low
    cut = {**scores, "head1": np.where(np.isnan(short), -np.inf, short)}
    full = {**scores, "head1": np.where(np.isnan(short), low, short)}
    fusion = Fusion.fit({**scores, "head1": short}, candidates, targets, counts)
    assert fusion == Fusion.fit(cut, candidates, targets, counts) == Fusion.fit(full, candidates, targets, counts)
    assert fusion.floors[1] == low
    nothing = {**scores, "head1": np.full(candidates.shape, np.nan)}
    assert np.isfinite(fusion.probabilities(nothing, candidates, counts)).all()


def test_excluded_cells_never_count():
    scores, candidates, targets, counts = make()
    rows = np.arange(len(candidates))
    exclude = sparse.csr_matrix((np.ones(len(rows)), (rows, candidates[:, 3])), shape=targets.shape)
    kept = np.delete(np.arange(12), 3)
    loud = {name: score.copy() for name, score in scores.items()}
    for score in loud.values():
        score[:, 3] = 1e6  # would be the best of every row, and spoil every mean
    fusion = Fusion.fit(loud, candidates, targets, counts, exclude=exclude)
    less = {name: score[:, kept] for name, score in scores.items()}
    assert fusion == Fusion.fit(less, candidates[:, kept], targets, counts)
    top = fusion.rank(loud, candidates, counts, 12, exclude=exclude)
    np.testing.assert_array_equal(top.ids[:, :11], fusion.rank(less, candidates[:, kept], counts, 11).ids)
    assert (top.ids[:, 11] == -1).all() and (top.scores[:, 11] == -np.inf).all()
    assert (fusion.probabilities(loud, candidates, counts, exclude=exclude)[:, 3] == 0).all()


def test_padding_never_counts():
    scores, candidates, targets, counts = make()
    wide = np.concatenate([candidates, np.full((len(candidates), 2), -1)], axis=1)
    more = {name: np.concatenate([score, np.full((len(score), 2), 99.0)], axis=1) for name, score in scores.items()}
    fusion = Fusion.fit(more, wide, targets, counts)
    assert fusion == Fusion.fit(scores, candidates, targets, counts)
    top = fusion.rank(more, wide, counts, k=20)
    assert top.ids.dtype == np.int64 and top.scores.dtype == np.float32 and top.ids.shape == (len(wide), 20)
    assert (top.ids[:, 12:] == -1).all() and (top.scores[:, 12:] == -np.inf).all()


def test_ties_go_to_the_lower_id():
    candidates = np.array([[9, 3, -1, 5]])
    top = plain("one").rank({"one": np.array([[1.0, 1.0, 8.0, 1.0]])}, candidates, np.ones(10), k=2)
    assert top.ids.tolist() == [[3, 5]]


def test_order_is_kept_if_all_probabilities_round_to_one():
    top = plain("one").rank({"one": np.array([[50.0, 60.0, 55.0]])}, np.array([[0, 1, 2]]), np.ones(3), k=3)
    assert top.ids.tolist() == [[1, 2, 0]] and top.scores.tolist() == [[1.0, 1.0, 1.0]]


def test_tail_weighs_by_inverse_propensity():
    scores = {"one": np.array([[0.0, -0.5, -3.0]])}  # p = 0.5, 0.378, 0.047
    candidates, counts, weights = np.array([[0, 1, 2]]), np.ones(3), np.array([1.0, 4.0, 4.0])
    ranked = [
        plain("one").rank(scores, candidates, counts, 3, inverse_propensity=weights, tail=tail).ids[0].tolist()
        for tail in (0.0, 0.1, 0.5, 2.0)
    ]
    assert ranked == [[0, 1, 2], [0, 1, 2], [1, 0, 2], [1, 2, 0]]
    top = plain("one").rank(scores, candidates, counts, 1, inverse_propensity=weights, tail=0.5)
    assert top.scores[0, 0] == pytest.approx(2 * expit(-0.5), rel=1e-6)


def test_margins_slopes_and_frequency_by_hand():
    fusion = replace(
        plain("one"), means=(1.0,), scales=(2.0,), weights=(3.0,), margins=(5.0,), slopes=(-2.0,), usual=1.5,
        frequency=0.5, bias=0.25,
    )  # fmt: skip
    chance = fusion.probabilities({"one": np.array([[2.0, 0.0]])}, np.array([[0, 1]]), np.array([0, 7]))
    best = (3 - 2 * -1.5) * 0.5 + 5 * 0 + 0.5 * -1.5 + 0.25
    other = (3 - 2 * (np.log(8) - 1.5)) * -0.5 + 5 * -1.0 + 0.5 * (np.log(8) - 1.5) + 0.25
    np.testing.assert_allclose(chance, expit([[best, other]]), rtol=1e-12)


def test_a_head_that_is_right_on_rare_labels_counts_more_there():
    rng = np.random.default_rng(3)
    truth = rng.random((2000, 8)) < 0.3
    counts = np.repeat([1, 100], 4)
    rare = counts == 1
    scores = {
        "text": truth * rare + rng.normal(size=truth.shape),
        "points": truth * ~rare + rng.normal(size=truth.shape),
    }
    candidates = np.tile(np.arange(8), (2000, 1))
    fusion = Fusion.fit(scores, candidates, sparse.csr_matrix(truth, dtype=np.float32), counts)
    assert fusion.slopes[0] < 0 < fusion.slopes[1]


def test_soft_targets_lower_the_probabilities():
    scores, candidates, targets, counts = make()
    sure, half = (
        Fusion.fit(scores, candidates, targets * share, counts).probabilities(scores, candidates, counts).mean()
        for share in (1.0, 0.5)
    )
    assert half == pytest.approx(sure / 2, rel=0.1)


def test_results_are_repeatable_and_inputs_are_not_changed():
    scores, candidates, targets, counts = make()
    before = {name: score.copy() for name, score in scores.items()}
    first = Fusion.fit(scores, candidates, targets, counts)
    assert first == Fusion.fit(scores, candidates, targets, counts)
    first.rank(scores, candidates, counts, 3)
    assert all(np.array_equal(scores[name], before[name]) for name in scores)


def test_no_queries():
    fusion, none = plain("one"), np.empty((0, 0))
    assert fusion.rank({"one": none}, none.astype(np.int64), np.ones(3), k=4).ids.shape == (0, 4)


def test_json_round_trip():
    scores, candidates, targets, counts = make(queries=50)
    fitted = Fusion.fit(scores, candidates, targets, counts)
    assert Fusion.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


@pytest.mark.parametrize(
    "change",
    [
        {"names": []}, {"names": "ab"}, {"names": ["a", "a"]}, {"names": [1, 2]}, {"weights": [1.0]},
        {"weights": [1.0, None]}, {"scales": [1.0, 0.0]}, {"means": [1.0, float("inf")]}, {"frequency": "high"},
        {"bias": True}, {"calibration": {}}, {"calibration": []}, {"more": 1},
    ],
)  # fmt: skip
def test_broken_json(change):
    with pytest.raises(DataError):
        Fusion.from_dict({**plain("a", "b").to_dict(), **change})


def test_the_plain_fusion_is_the_mean_of_standardised_scores():
    scores, candidates, _, counts = make(queries=50)
    scores["short"] = np.where(candidates % 2, -np.inf, 7.0)  # constant, and not there for every label
    fusion = Fusion.plain(scores, candidates, counts)
    parts, rest = fusion.contributions(scores, candidates, counts)
    live = candidates >= 0
    for name, part in parts.items():
        z = part[live] * len(scores)
        assert abs(z.mean()) < 1e-9 and (name == "short" or z.std() == pytest.approx(1))
    assert not rest.any() and fusion.calibration is None
    assert Fusion.from_dict(json.loads(json.dumps(fusion.to_dict()))) == fusion
    total = sum(parts.values())
    assert fusion.probabilities(scores, candidates, counts)[live] == pytest.approx(1 / (1 + np.exp(-total[live])))


def test_a_plain_fusion_without_any_wrong_label():
    fusion = Fusion.plain({"one": np.zeros((2, 1))}, np.full((2, 1), -1), np.ones(3, dtype=np.int64))
    assert (fusion.means, fusion.scales) == ((0.0,), (1.0,))


def fit_with(**changes):
    names = ("scores", "candidates", "targets", "counts")
    given_ = {**dict(zip(names, make(queries=20), strict=True)), **changes}
    rest = {key: value for key, value in given_.items() if key not in names}
    return Fusion.fit(*(given_[name] for name in names), **rest)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"scores": {}}, DataError, "no head"),
        ({"scores": {"a": np.zeros((20, 3))}}, DataError, "scores of a must be"),
        ({"scores": {"a": np.full((20, 12), np.inf)}}, DataError, "infinite"),
        ({"candidates": np.zeros((20, 12))}, DataError, "must be integers"),
        ({"candidates": np.zeros((20, 12), dtype=int)}, DataError, "duplicate label among the candidates of row 0"),
        ({"candidates": np.tile(np.arange(30, 42), (20, 1))}, DataError, "outside 0 to 39"),
        ({"targets": sparse.csr_matrix((20, LABELS))}, DataError, "nothing to fit on"),
        ({"targets": sparse.csr_matrix((20, 7))}, DataError, "targets must be a sparse matrix"),
        ({"targets": sparse.csr_matrix(np.full((20, LABELS), 2.0))}, DataError, "lie in"),
        ({"targets": np.ones((20, LABELS))}, DataError, "sparse"),
        ({"exclude": sparse.csr_matrix((3, LABELS))}, DataError, "exclude must be"),
        ({"counts": np.full(LABELS, -1)}, DataError, "counts"),
        ({"hard": 0}, SettingError, "hard"),
        ({"l2": 0.0}, SettingError, "l2"),
    ],
)
def test_mistakes_in_fit(changes, error, match):
    with pytest.raises(error, match=match):
        fit_with(**changes)


def test_mistakes_in_rank():
    given_ = {"one": np.zeros((1, 2))}, np.array([[0, 1]]), np.ones(2)
    fusion = plain("one")
    with pytest.raises(DataError, match="this model fuses one"):
        fusion.rank({"two": np.zeros((1, 2))}, *given_[1:], 1)
    with pytest.raises(SettingError, match="k must be"):
        fusion.rank(*given_, 0)
    with pytest.raises(SettingError, match="without label weights"):
        fusion.rank(*given_, 1, tail=0.2)
    with pytest.raises(SettingError, match="tail must be"):
        fusion.rank(*given_, 1, tail=-1.0)
    with pytest.raises(DataError, match="label weights must be"):
        fusion.rank(*given_, 1, tail=0.2, inverse_propensity=np.zeros(2))
    with pytest.raises(DataError, match="for 2 labels"):
        fusion.rank(*given_, 1, tail=0.2, inverse_propensity=np.ones(3))
    with pytest.raises(DataError, match="label counts"):
        fusion.rank(*given_[:2], np.array([1.0, np.nan]), 1)
    with pytest.raises(DataError, match="one number per label"):
        fusion.rank(*given_[:2], np.ones((1, 2)), 1)


def test_shares_describe_the_ranking_within_a_row():
    scores, candidates, targets, counts = make(queries=300)
    fusion = Fusion.fit(scores, candidates, targets, counts)
    shares = fusion.shares()
    assert sum(map(abs, shares.values())) == pytest.approx(1)
    sums = {name: w + m for name, w, m in zip(fusion.names, fusion.weights, fusion.margins, strict=True)}
    assert sorted(shares, key=shares.get) == sorted(sums, key=sums.get)


def test_contributions_add_up_to_the_log_odds():
    scores, candidates, targets, counts = make(weights=(1.0, 0.3), frequency=0.5)
    fusion = Fusion.fit(scores, candidates, targets, counts)
    candidates[:, -1] = -1
    parts, rest = fusion.contributions(scores, candidates, counts)
    assert list(parts) == ["head0", "head1"]
    odds = fusion.calibration.log_odds(np.where(candidates >= 0, rest + sum(parts.values()), -np.inf))
    np.testing.assert_allclose(expit(odds), fusion.probabilities(scores, candidates, counts), atol=1e-12)
