import json

import pytest

from megalabel.data.formats import Options, detect
from megalabel.data.formats.xmc_json import read
from megalabel.errors import SettingError

# As the downloads of the extreme classification repository look.
TRAIN = (
    '{"uid": "0000032069", "title": "Ballet Tutu", "content": "Red", "target_ind": [1, 0], "target_rel": [1.0, 1.0]}\n'
    '{"uid": "0000031909", "title": "Girls Tutu", "content": "", "target_ind": [2], "target_rel": [1.0]}\n'
)
TEST = (
    '{"uid": "0000589012", "title": "Why Don\'t They", "content": "DVD", "target_ind": [], "target_rel": []}\n'
    '{"uid": "0000031909", "title": "Girls Tutu", "content": null, "target_ind": [0]}\n'
)
LABELS = (
    '{"uid": "B1", "title": "Skirt", "content": "long"}\n'
    '{"uid": "B2", "title": "Shoes"}\n'
    '{"uid": "B3", "title": "Hat"}\n'
)
GOOD = {"trn.json.gz": TRAIN, "tst.json.gz": TEST, "lbl.json.gz": LABELS}


def test_titles_and_contents(make):
    folder = make(GOOD, "LF-Amazon-131K")
    assert detect(folder) == ("xmc-json", "it holds trn.json.gz with target_ind")
    data = read(folder, Options())
    assert data.train.texts == ["Ballet Tutu Red", "Girls Tutu"]
    assert data.test.texts == ["Why Don't They DVD", "Girls Tutu"]
    assert data.labels.texts == ["Skirt long", "Shoes", "Hat"]
    assert data.train.targets.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert data.train.uids == ["0000032069", "0000031909"]
    assert data.propensity == (0.6, 2.6)


def test_titles_sets_use_the_title_and_an_option_decides(make):
    folder = make(GOOD, "LF-AmazonTitles-131K")
    assert read(folder, Options()).train.texts[0] == "Ballet Tutu"
    assert read(folder, Options(fields="title+content")).train.texts[0] == "Ballet Tutu Red"
    with pytest.raises(SettingError, match="did you mean 'title'"):
        read(folder, Options(fields="titles"))


@pytest.mark.parametrize("names", ["filter_labels_{split}.txt", "{stem}_filter_labels.txt"])
def test_filter_files_under_both_names(make, names):
    files = {names.format(split="train", stem="trn"): "1 2\n", names.format(split="test", stem="tst"): "0 1\n1 2\n"}
    data = read(make(GOOD | files), Options())
    assert data.train.filter.tolist() == [[1, 2]]
    assert data.test.filter.tolist() == [[0, 1], [1, 2]]


def test_plain_files_without_uids(make):
    files = {"trn.json": '{"title": "a", "target_ind": [0]}\n', "tst.json": '{"content": "b", "target_ind": [0]}\n'}
    data = read(make(files | {"lbl.json": '{"title": "x"}'}), Options())
    assert (data.train.uids, data.test.uids, data.labels.uids) == (["trn-0"], ["tst-0"], ["lbl-0"])
    assert data.test.texts == ["b"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"target_ind": [3]}, "label id 3 is out of range"),
        ({"target_ind": [0, 0]}, "duplicate label id 0"),
        ({"target_ind": ["0"]}, "label id '0' is not a whole number"),
        ({"target_ind": [0], "target_rel": [2.0]}, "weight 2.0 is not a number in (0, 1]"),
        ({"target_ind": [0], "target_rel": [0.0]}, "weight 0.0"),
        ({"target_ind": [0], "target_rel": []}, "1 label needs as many weights"),
        ({"target_ind": [0], "content": 1.5}, '"content" must be a text'),
        ({"target_ind": [0], "title": None}, '"title" must be a text'),
        ({}, 'the key "target_ind" is missing'),
    ],
)
def test_invalid_point_errors_have_file_and_line(refused, row, said):
    line = json.dumps({"uid": "x", "title": "t"} | row) + "\n"
    refused("xmc-json", GOOD | {"tst.json.gz": TEST + line}, "tst.json.gz:3: ", said)


def test_missing_files(refused):
    refused("xmc-json", {"trn.json": TRAIN, "tst.json": TEST}, "there is no lbl.json")
    refused("xmc-json", {"lbl.json": LABELS}, "there is no trn.json")
    refused(
        "xmc-json",
        {"lbl.json": LABELS * 2, "trn.json": TRAIN},
        "lbl.json:4: ",
        "duplicate label uid 'B1', first on line 1",
    )
