import gzip
import json

import numpy as np
import pytest

from megalabel.data.formats import Options, detect
from megalabel.data.formats.folder import read
from megalabel.errors import SettingError

LABELS = '{"uid": "r", "text": "red"}\n{"uid": "g", "text": "green"}\n'
TRAIN = '{"uid": "a", "text": "one", "labels": [0, 1]}\n{"uid": "b", "text": "two", "labels": [1]}\n'
TEST = '{"uid": "c", "text": "three", "labels": [0]}\n'
GOOD = {"lbl.jsonl": LABELS, "trn.jsonl": TRAIN, "tst.jsonl": TEST}


def point(**changes):
    return json.dumps({"uid": "a", "text": "one", "labels": [0]} | changes) + "\n"


def test_plain_and_gzip_files_may_be_mixed(make):
    files = {"lbl.jsonl.gz": LABELS, "trn.jsonl": TRAIN, "tst.jsonl.gz": TEST, "filter_tst.txt.gz": "0 1\n"}
    folder = make(files, "LF-AmazonTitles-131K")
    assert detect(folder) == ("folder", "it holds trn.jsonl and lbl.jsonl")
    data = read(folder, Options())
    assert data.name == "LF-AmazonTitles-131K"
    assert data.propensity == (0.6, 2.6)
    assert data.train.targets.toarray().tolist() == [[1, 1], [0, 1]]
    assert data.test.filter.tolist() == [[0, 1]]
    assert data.labels.uids == ["r", "g"]


def test_the_card_wins_over_the_name_of_the_folder(make):
    folder = make(GOOD | {"card.json": '{"name": "LF-Wikipedia-500K"}'}, "amazon")
    assert read(folder, Options()).propensity == (0.5, 0.4)


def test_byte_order_mark_windows_lines_blank_lines_and_no_last_newline(make):
    files = GOOD | {"trn.jsonl": "\ufeff" + TRAIN.replace("\n", "\r\n\r\n").rstrip()}
    assert len(read(make(files), Options()).train) == 2


def test_uids_may_be_numbers(make):
    assert read(make(GOOD | {"tst.jsonl": point(uid=7)}), Options()).test.uids == ["7"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": [2]}, "label id 2 is out of range, the set has 2 labels; ids run from 0 to 1"),
        ({"labels": [-1]}, "label id -1 is out of range"),
        ({"labels": [10**30]}, "label id"),
        ({"labels": [2**63 - 1]}, "out of range"),
        ({"labels": [1, 0, 1]}, "duplicate label id 1 in one row"),
        ({"labels": ["0"]}, "label id '0' is not a whole number"),
        ({"labels": [0.0]}, "label id 0.0 is not a whole number"),
        ({"labels": [True]}, "label id True is not a whole number"),
        ({"labels": [None]}, "label id None is not a whole number"),
        ({"labels": [[0]]}, "label id [0] is not a whole number"),
        ({"labels": None}, "labels must be a list"),
        ({"labels": "0 1"}, "labels must be a list"),
        ({"labels": 0}, "labels must be a list"),
        ({"labels": {"0": 1}}, "labels must be a list"),
        ({"weights": [0]}, "weight 0 is not a number in (0, 1]"),
        ({"weights": [-0.5]}, "weight -0.5"),
        ({"weights": [1.5]}, "weight 1.5"),
        ({"weights": [1e-60]}, "weight 1e-60"),
        ({"weights": ["0.5"]}, "weight '0.5'"),
        ({"weights": [True]}, "weight True"),
        ({"weights": [None]}, "weight None"),
        ({"weights": []}, "1 label needs as many weights"),
        ({"weights": [0.5, 0.5]}, "1 label needs as many weights"),
        ({"weights": 0.5}, "1 label needs as many weights"),
        ({"text": None}, '"text" must be a text, not None'),
        ({"text": ["a"]}, '"text" must be a text'),
        ({"uid": None}, '"uid" must be a text'),
        ({"uid": 1.5}, '"uid" must be a text'),
    ],
)
def test_invalid_point_errors_have_file_and_line(refused, changes, said):
    refused("folder", GOOD | {"trn.jsonl": TRAIN + point(**changes)}, "trn.jsonl:3: ", said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"uid": "a", "text": "one", "labels": [0]', "broken JSON"),
        ('{"uid": "a", "text": "one", "labels": [0], "weights": [NaN]}', "NaN is no number in JSON"),
        ('{"uid": "a", "text": "one", "labels": [0], "weights": [-Infinity]}', "Infinity is no number in JSON"),
        ('{"uid": "a", "text": "one", "labels": [0]} trailing', "broken JSON"),
        ("['a']", "broken JSON"),
        ('["a"]', "a JSON object like {...} was expected"),
        ('{"text": "one", "labels": [0]}', 'the key "uid" is missing'),
        ('{"uid": "a", "labels": [0]}', 'the key "text" is missing'),
        ('{"uid": "a", "text": "one"}', 'the key "labels" is missing'),
    ],
)
def test_invalid_line_errors_have_file_and_line(refused, line, said):
    refused("folder", GOOD | {"trn.jsonl": TRAIN + line}, "trn.jsonl:3: ", said)


def test_label_files(refused):
    refused(
        "folder",
        GOOD | {"lbl.jsonl": LABELS + '{"uid": "r", "text": "x"}'},
        "lbl.jsonl:3: ",
        "duplicate label uid 'r', first on line 1",
    )
    refused("folder", GOOD | {"lbl.jsonl": "\n\n"}, "lbl.jsonl: this file holds no labels")
    refused("folder", GOOD | {"lbl.jsonl": ""}, "lbl.jsonl: the file is empty")
    refused("folder", {"trn.jsonl": TRAIN, "tst.jsonl": TEST}, "there is no lbl.jsonl")


def test_no_positives_at_all(refused):
    refused("folder", GOOD | {"trn.jsonl": point(labels=[])}, "trn.jsonl: ", "no positives")
    refused("folder", GOOD | {"tst.jsonl": point(labels=[])}, "tst.jsonl: ", "no positives")
    refused("folder", GOOD | {"trn.jsonl": "\n"}, "trn.jsonl: this file holds no points")


def test_invalid_truncated_or_damaged_gzip(refused):
    files = {"lbl.jsonl": LABELS, "tst.jsonl": TEST}
    packed = gzip.compress(TRAIN.encode() * 500)
    broken = packed[:40] + bytes([packed[40] ^ 0xFF]) + packed[41:]
    refused("folder", files | {"trn.jsonl.gz": TRAIN.encode()}, "trn.jsonl.gz: ", "not a gzip file")
    refused("folder", files | {"trn.jsonl.gz": b""}, "trn.jsonl.gz: the file is empty")
    refused("folder", files | {"trn.jsonl.gz": packed[:-9]}, "trn.jsonl.gz: ", "cut off", "again")
    refused("folder", files | {"trn.jsonl.gz": packed + b"rubbish"}, "trn.jsonl.gz: ", "broken")
    refused("folder", files | {"trn.jsonl.gz": broken}, "trn.jsonl.gz")


def test_a_damaged_checksum_is_detected(refused):
    packed = bytearray(gzip.compress(TRAIN.encode()))
    packed[-6] ^= 0xFF
    refused(
        "folder", {"lbl.jsonl": LABELS, "tst.jsonl": TEST, "trn.jsonl.gz": bytes(packed)}, "broken (CRC check failed"
    )


def test_a_test_share_outside_0_to_1(make):
    files = {key: value for key, value in GOOD.items() if key != "tst.jsonl"}
    with pytest.raises(SettingError, match="between 0 and 1"):
        read(make(files), Options(test_share=1.5))


def test_a_held_out_share_is_not_capped(make):
    rows = "".join(point(uid=i, labels=[i % 2]) for i in range(25_000))
    data = read(make({"lbl.jsonl": LABELS, "trn.jsonl": rows}), Options(test_share=0.5))
    assert (len(data.train), len(data.test)) == (12_500, 12_500)


def test_weights_may_be_on_some_rows_only(make):
    rows = point() + point(labels=[1], weights=[0.25]) + point(labels=[0, 1])
    data = read(make(GOOD | {"trn.jsonl": rows}), Options())
    np.testing.assert_array_equal(data.train.targets.toarray(), [[1, 0], [0, 0.25], [1, 1]])


def test_duplicate_keys_are_refused_with_their_line(refused):
    row = '{"uid": "a", "text": "x", "labels": [0], "labels": [1]}'
    refused("folder", GOOD | {"trn.jsonl": row}, "trn.jsonl:1: invalid JSON (duplicate key 'labels')")


def test_filter_pairs_that_are_relevant_are_reported(make):
    lines = []
    folder = make(GOOD | {"filter_trn.txt": "0 0\n0 1\n1 0\n1 1\n"})
    data = read(folder, Options(say=lines.append))
    relevant = int(data.train.targets[:2, :2].nnz)
    assert lines == [f"{relevant} of the 4 train filter pairs are relevant as well and can never be right"]


@pytest.mark.parametrize("pair", ["[1e300, 1]", "[-1, 1]", "[1, 0]", "[1, -2]", "[9e99, 9e99]", "[1]", '["a", 1]'])
def test_propensity_constants_that_give_no_weights(refused, pair):
    refused("folder", GOOD | {"card.json": f'{{"propensity": {pair}}}'}, "card.json: propensity")
