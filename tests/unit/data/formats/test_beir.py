import json

import numpy as np
import pytest

from megalabel.data.dataset import Dataset, Split
from megalabel.data.formats import Options, detect
from megalabel.data.formats.beir import read
from megalabel.data.save import save
from megalabel.errors import DataError

# As a public BEIR download looks.
CORPUS = (
    '{"_id": "d1", "title": "Title", "text": "Body one.", "metadata": {"url": "x"}}\n'
    '{"_id": "d2", "title": "", "text": "Body two."}\n'
    '{"_id": "d3", "text": "Body three."}\n'
)
QUERIES = "".join(json.dumps({"_id": f"q{i}", "text": f"query {i}", "metadata": {}}) + "\n" for i in (3, 1, 2, 9))
HEADER = "query-id\tcorpus-id\tscore\n"
GOOD = {
    "corpus.jsonl": CORPUS,
    "queries.jsonl": QUERIES,
    "qrels/train.tsv": HEADER + "q1\td1\t1\nq1\td2\t1\nq3\td3\t1\n",
    "qrels/test.tsv": HEADER + "q2\td2\t1\n",
}


def test_qrels_assign_queries_to_splits(make):
    folder = make(GOOD | {"qrels/dev.tsv": HEADER + "q1\td3\t1\n"})
    assert detect(folder) == ("beir", "it holds corpus.jsonl and queries.jsonl")
    data = read(folder, Options())
    assert data.labels.texts == ["Title Body one.", "Body two.", "Body three."]
    assert (data.train.uids, data.val.uids, data.test.uids) == (["q3", "q1"], ["q1"], ["q2"])
    assert data.train.targets.toarray().tolist() == [[0, 0, 1], [1, 1, 0]]
    assert data.test.texts == ["query 2"]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (("2", "1", "4"), [0.5, 0.25, 1]),
        (("1", "0", "1"), [1, 0, 1]),
        (("1", "-1", "2"), [0.5, 0, 1]),
        (("0.5", "1", "0.25"), [0.5, 1, 0.25]),
        (("1.0", "0.0", "1e-1"), [1, 0, 0.1]),
    ],
)
def test_scores(make, scores, expected):
    rows = "q1\td1\t{}\nq1\td2\t{}\nq3\td3\t{}\n".format(*scores)
    data = read(make(GOOD | {"qrels/train.tsv": HEADER + rows}), Options())
    np.testing.assert_array_equal(data.train.targets.toarray()[[1, 1, 0], [0, 1, 2]], np.float32(expected))


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"qrels/train.tsv": HEADER + "q1\td1\t1\nq7\td1\t1\n"}, ["train.tsv:3: query 'q7' is not in queries.jsonl"]),
        ({"qrels/train.tsv": HEADER + "q1\td1\t1\nq1\td7\t1\n"}, ["train.tsv:3: document 'd7' is not in corpus.jsonl"]),
        (
            {"qrels/train.tsv": HEADER + "q1\td1\t1\nq1\td1\t1\n"},
            ["train.tsv:3: duplicate pair 'q1', 'd1'"],
        ),
        ({"qrels/train.tsv": HEADER + "q1\td1\tnan\n"}, ["train.tsv:2: score 'nan' is not a number"]),
        ({"qrels/train.tsv": HEADER + "q1\td1\tinf\n"}, ["train.tsv:2: score 'inf'"]),
        ({"qrels/train.tsv": HEADER + "q1\td1\tgood\n"}, ["train.tsv:2: score 'good'"]),
        ({"qrels/train.tsv": HEADER + "q1\td1\t1.5\n"}, ["train.tsv: score 1.5", "(0, 1]"]),
        ({"qrels/train.tsv": HEADER + "q1\td1\n"}, ["train.tsv:2: 2 cells, but the header has 3"]),
        ({"qrels/train.tsv": "q1\td1\t1\n"}, ["train.tsv:1: expected a header 'query-id corpus-id score'"]),
        ({"qrels/train.tsv": HEADER + "q1\td1\t0\n"}, ["train.tsv: no row of this file has a label"]),
        ({"qrels/train.tsv": ""}, ["train.tsv: the file is empty"]),
        (
            {"queries.jsonl": QUERIES + '{"_id": "q1", "text": "x"}'},
            ["queries.jsonl:5: duplicate query id 'q1'"],
        ),
        ({"queries.jsonl": QUERIES + '{"_id": "q5"}'}, ['queries.jsonl:5: the key "text" is missing']),
        ({"corpus.jsonl": CORPUS + '{"_id": "d1", "text": "x"}'}, ["corpus.jsonl:4: duplicate label uid 'd1'"]),
        ({"corpus.jsonl": CORPUS + '{"_id": "d4"'}, ["corpus.jsonl:4: broken JSON"]),
    ],
)
def test_invalid_files_give_errors_with_file_and_line(refused, files, parts):
    refused("beir", GOOD | files, *parts)


def test_a_test_only_set_is_an_error(refused):
    files = {name: text for name, text in GOOD.items() if "train" not in name}
    refused("beir", files, "there is no qrels/train.tsv", "for testing only")


def test_a_query_id_cannot_belong_to_two_points(tmp_path):
    data = Dataset.from_lists([("a", [0]), ("b", [0])], [("c", [0])], ["x"])
    same = Split(data.train.texts, data.train.targets, ["q", "q"])
    for bad in (data.replace(train=same), data.replace(test=Split(["c"], data.test.targets, ["trn-0"]))):
        with pytest.raises(DataError) as error:
            save(bad, tmp_path / "set", format="beir")
        assert "belongs to two points" in str(error.value)
        assert str(tmp_path / "set" / "queries.jsonl") in str(error.value)
        assert list(tmp_path.iterdir()) == []


def test_one_query_in_two_splits_keeps_its_row_in_each(tmp_path):
    data = Dataset.from_lists([("a", [0]), ("b", [1])], [("b", [0]), ("a", [1])], ["x", "y"])
    data = data.replace(train=Split(["a", "b"], data.train.targets, ["1", "2"]))
    data = data.replace(test=Split(["b", "a"], data.test.targets, ["2", "1"]))
    save(data, tmp_path / "set", format="beir")
    back = read(tmp_path / "set", Options())
    assert (back.train.uids, back.test.uids) == (["1", "2"], ["2", "1"])
    assert back.test.targets.toarray().tolist() == [[1, 0], [0, 1]]
