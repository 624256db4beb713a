import pytest

from megalabel.data.formats import Options, detect
from megalabel.data.formats.tsv import read

TEST = "text\tlabels\nx\ta\n"


def test_a_folder(make):
    folder = make({"train.tsv": 'text\tlabels\n"one\ttwo"\ta|b\n12" ruler\ta\n', "test.tsv": TEST})
    assert detect(folder) == ("tsv", "it holds train.tsv")
    data = read(folder, Options())
    assert data.train.texts == ["one\ttwo", '12" ruler']
    assert data.labels.uids == ["a", "b"]


def test_a_file_without_quotes_is_read_verbatim(make):
    files = {"train.tsv": 'text\tlabels\n"one\ta\n"two" three\ta\n"four"\tb\n', "test.tsv": TEST}
    assert read(make(files), Options()).train.texts == ['"one', '"two" three', '"four"']


def test_unbalanced_quotes_are_an_error(refused):
    files = {"train.tsv": 'text\tlabels\n"one\ttwo"\ta\n"three" four\ta\n', "test.tsv": TEST}
    refused("tsv", files, "train.tsv:3: broken quotes")


@pytest.mark.parametrize("name", ["a.tsv", "a.tab", "a.txt", "a.csv", "a", "a.tsv.gz"])
def test_a_single_file_is_recognised_by_its_header(make, name):
    rows = "text\tlabels\n" + "".join(f"one {i}\tx\ntwo {i}\ty\n" for i in range(10))
    assert detect(make({name: rows}) / name) == ("tsv", "its header is: text, labels")
    assert detect(make({name: rows.replace("\t", ",")}) / name) == ("csv", "its header is: text, labels")
    assert len(read(make({name: rows}) / name, Options()).train) == 18


def test_unknown_columns_need_the_right_ending(make):
    from megalabel.data.formats import csv, tsv

    path = make({"a.tsv": "foo\tbar\n"}) / "a.tsv"
    assert tsv.looks_like(path) == "its header is: foo, bar"
    assert csv.looks_like(path) is None
    path = make({"a.txt": "foo\tbar\n"}) / "a.txt"
    assert tsv.looks_like(path) is None
    path = make({"a.csv": b""}) / "a.csv"
    assert csv.looks_like(path) == "its name ends in .csv"
    assert tsv.looks_like(path) is None
