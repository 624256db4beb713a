from dataclasses import replace

from megalabel.report.samples import choose_samples


def sample(right):
    return {"text": "t", "labels": [{"text": "a", "relevant": right, "score": 1.0}], "missed": []}


def test_right_and_wrong_apart(results):
    run = replace(results[0], samples=[sample(place % 3 == 0) for place in range(30)])
    right, wrong = choose_samples([run])
    assert len(right) == len(wrong) == 4
    assert all(place % 3 == 0 for place in right)
    assert all(place % 3 for place in wrong)
    assert right == sorted(right) and right[-1] > 15  # from all parts


def test_texts_on_which_runs_differ_come_first(results):
    one = replace(results[0], samples=[sample(place < 10) for place in range(20)])
    other = replace(results[1], samples=[sample(place < 8 or place == 15) for place in range(20)])
    right, wrong = choose_samples([one, other])
    assert {8, 9} <= set(right) and 15 in wrong


def test_few_or_no_samples(results):
    assert choose_samples([replace(results[0], samples=[])]) == ([], [])
    none = {"text": "t", "labels": [], "missed": ["a"]}
    assert choose_samples([replace(results[0], samples=[none])]) == ([], [0])
