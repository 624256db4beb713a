import json

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.metrics import evaluate


def test_table_names_the_constants_over_every_weighted_column(golden):
    ids, truth, counts, points = golden
    text = evaluate(ids, truth, counts=counts, points=points, A=0.6, B=2.6, ks=[1, 3]).table()
    first, second, header = text.splitlines()[2:5]
    assert header.split()[:6] == ["k", "P", "nDCG", "PSP", "PSnDCG", "R"]
    for name in ("PSP", "PSnDCG"):
        end = header.index(name) + len(name)
        assert first[:end].endswith("A=0.6") and second[:end].endswith("B=2.6")
    assert text.splitlines()[5].split()[:3] == ["1", "33.33", "33.33"]
    assert "1 head" in text and "unseen" in text
    assert max(map(len, text.splitlines())) <= 120


def test_table_without_propensities(golden):
    report = evaluate(golden[0], golden[1], ks=[1])
    assert "PSP" not in report.table() and "A=" not in report.table()
    assert str(report) == report.table()


def test_table_with_given_weights(golden):
    text = evaluate(golden[0], golden[1], inverse_propensity=np.ones(5), ks=[1]).table()
    assert text.splitlines()[2].split() == ["own", "own"]


def test_dict_is_json(golden):
    ids, truth, counts, points = golden
    document = json.loads(json.dumps(evaluate(ids, truth, counts=counts, points=points).to_dict(), allow_nan=False))
    assert document["propensity"] == {"A": 0.55, "B": 1.5, "points": 10}
    assert (document["rows"], document["labels"]) == (3, 5)
    assert [part["name"] for part in document["groups"]] == ["head", "torso", "tail", "unseen"]
    for k in (1, 3, 5):
        for parts in (document["bins"], document["groups"]):
            assert abs(sum(part[f"P@{k}"] for part in parts) - document["metrics"][f"P@{k}"]) < 1e-9


def test_counts_of_every_integer_type_make_json():
    truth = csr_matrix([[1, 0]])
    for dtype in (np.int32, np.uint16, np.float64):
        report = evaluate(np.array([[0]]), truth, counts=np.array([2, 1], dtype=dtype), points=np.int64(3), ks=(1,))
        json.dumps(report.to_dict())
