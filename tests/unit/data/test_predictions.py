import json

import numpy as np
import pytest
from scipy import sparse

from megalabel.data import Split
from megalabel.data.predictions import read_predictions, write_predictions
from megalabel.errors import DataError
from megalabel.types import TopK


def split(uids):
    return Split(list(uids), sparse.csr_matrix((len(uids), 4)), list(uids))


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_any_order_short_rows_and_missing_points(tmp_path):
    path = write(tmp_path / "p.jsonl", {"uid": "c", "labels": [3]}, {"uid": "a", "labels": [1, 0], "scores": [2, 1.5]})
    ids, missing = read_predictions(path, split("abc"), 4)
    assert ids.tolist() == [[1, 0], [-1, -1], [3, -1]]
    assert missing == 1


def test_round_trip(tmp_path):
    predictions = TopK(np.array([[2, 1], [0, -1]]), np.array([[0.5, 0.1], [0.3, -np.inf]], dtype=np.float32))
    write_predictions(tmp_path / "p.jsonl.gz", split("ab"), predictions)
    ids, missing = read_predictions(tmp_path / "p.jsonl.gz", split("ab"), 4)
    assert ids.tolist() == predictions.ids.tolist()
    assert missing == 0


def test_repeated_uids_must_come_in_order(tmp_path):
    good = write(tmp_path / "p.jsonl", {"uid": "a", "labels": [0]}, {"uid": "a", "labels": [1]})
    assert read_predictions(good, split("aa"), 4)[0].tolist() == [[0], [1]]
    bad = write(tmp_path / "q.jsonl", {"uid": "b", "labels": [0]})
    with pytest.raises(DataError, match="order of the data"):
        read_predictions(bad, split("aab"), 4)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"uid": "z", "labels": [0]}, "'z' is not in the data"),
        ({"uid": "a", "labels": [0]}, "is a duplicate in this file"),
        ({"labels": [0]}, "uid"),
        ({"uid": "b"}, "labels"),
        ({"uid": "b", "labels": [4]}, "4 is out of range"),
        ({"uid": "b", "labels": [-1]}, "-1 is out of range"),
        ({"uid": "b", "labels": [1, 1]}, "duplicate label id 1"),
        ({"uid": "b", "labels": ["1"]}, "'1' is not a valid number"),
        ({"uid": "b", "labels": [1.0]}, "1.0 is not a valid number"),
        ({"uid": "b", "labels": [True]}, "True is not a valid number"),
        ({"uid": "b", "labels": [10**30]}, "not a valid number"),
        ({"uid": "b", "labels": [0], "scores": []}, "1 label but 0 scores"),
        ({"uid": "b", "labels": [0], "scores": ["x"]}, "'x' is not a valid number"),
        ({"uid": "b", "labels": [0, 1], "scores": [1, 2]}, "best first"),
        ('{"uid": "b", "labels": [0], "scores": [NaN]}', "broken JSON"),
        ('{"uid": "b"', "broken JSON"),
        ("[1, 2]", "object"),
    ],
)
def test_bad_lines_name_file_and_line(tmp_path, row, words):
    path = write(tmp_path / "p.jsonl", {"uid": "a", "labels": [0]}, row)
    with pytest.raises(DataError) as error:
        read_predictions(path, split("abc"), 4)
    assert str(error.value).startswith(f"{path}:2: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_empty_and_missing_files(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    for name in ("empty.jsonl", "missing.jsonl"):
        with pytest.raises(DataError):
            read_predictions(tmp_path / name, split("a"), 4)
