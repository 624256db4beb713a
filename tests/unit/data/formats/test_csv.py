import numpy as np
import pytest

from megalabel.data.formats import Options, detect
from megalabel.data.formats.csv import read

TRAIN = "uid,text,labels\na,one,r|g\nb,two,g\n"
TEST = "uid,text,labels\nc,three,r\n"
LABELS = "uid,text\nr,red\ng,green\n"
GOOD = {"train.csv": TRAIN, "test.csv": TEST, "labels.csv": LABELS}


def dense(split):
    return split.targets.toarray().tolist()


def test_a_folder_with_a_label_table(make):
    folder = make(GOOD)
    assert detect(folder) == ("csv", "it holds train.csv")
    data = read(folder, Options())
    assert (data.train.uids, data.train.texts) == (["a", "b"], ["one", "two"])
    assert dense(data.train) == [[1, 1], [0, 1]]
    assert (data.labels.uids, data.labels.texts) == (["r", "g"], ["red", "green"])


def test_without_a_label_table_labels_are_named_by_the_cells(make):
    files = {
        "trn.csv": "text,tags\none,b; a ;\ntwo,\nthree,a\n",
        "tst.csv": "text,tags\nfour,c\n",
        "dev.csv": "text,tags\nx,a\n",
    }
    data = read(make(files), Options())
    assert data.labels.uids == data.labels.texts == ["a", "b", "c"]
    assert dense(data.train) == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert dense(data.test) == [[0, 0, 1]]
    assert data.train.uids == ["trn-0", "trn-1", "trn-2"]
    assert len(data.val) == 1


@pytest.mark.parametrize(
    ("cells", "separator", "labels"),
    [
        (["a|b", "b"], None, ["a", "b"]),
        (["a;b", "b"], None, ["a", "b"]),
        (['"a,b"', "b"], None, ["a", "b"]),
        (["a;b|c", "b", "c"], "|", ["a;b", "b", "c"]),
        (["a b", "b"], None, ["a b", "b"]),
        (["a b", "b"], " ", ["a", "b"]),
        (["a/b", "b"], "/", ["a", "b"]),
        (["a\tb", "b"], "\\t", ["a", "b"]),
        (["a|b", "b"], "", ["a|b", "b"]),
        (['"[""a"", ""b""]"', '"[""b""]"'], None, ["a", "b"]),
        (["\"['a', 'b']\"", "[]"], None, ["a", "b"]),
        (["[a]", "b"], None, ["[a]", "b"]),
    ],
)
def test_separators(make, cells, separator, labels):
    rows = "".join(f"text {i},{cell}\n" for i, cell in enumerate(cells))
    files = {"train.csv": f"text,labels\n{rows}", "test.csv": f"text,labels\nx,{cells[0]}\n"}
    assert read(make(files), Options(separator=separator)).labels.uids == labels


@pytest.mark.parametrize(
    ("table", "cells", "expected"),
    [
        ("uid,text\nr,red\ng,green\n", ["r;g", "g"], [[1, 1], [0, 1]]),
        ("uid,text\nr,red\ng,green\n", ["green;red", "green"], [[1, 1], [0, 1]]),
        ("uid,text\nr,red\ng,green\n", ["r, g", " g"], [[1, 1], [0, 1]]),
        ("uid,text\nr|x,red\ng,green\n", ["r|x", "g"], [[1, 0], [0, 1]]),
        ("uid,text\nr|x,red\ng,green\n", ["r|x;g", "g"], [[1, 1], [0, 1]]),
        ("text\nred\ngreen\n", ["green", "red|green"], [[0, 1], [1, 1]]),
        ("text\nred\nred\n", ["1", "0|1"], [[0, 1], [1, 1]]),
        ("label,text\n7,red\n5,green\n", ["5", "7 5"], [[0, 1], [1, 1]]),
        ("id,label\n7,red\n5,green\n", ["5", "7 5"], [[0, 1], [1, 1]]),
        ("code,meaning\n7,red\n5,green\n", ["5", "7 5"], [[0, 1], [1, 1]]),
        ("uid\nr\ng\n", ["g", "r|g"], [[0, 1], [1, 1]]),
        ("uid,text\nr,red\ng,green\n", ["1", "0|1"], [[0, 1], [1, 1]]),
    ],
)
def test_labels_are_found_by_uid_then_text_then_number(make, table, cells, expected):
    rows = "".join(f'text,"{cell}"\n' for cell in cells)
    data = read(
        make({"train.csv": f"text,labels\n{rows}", "test.csv": f"text,labels\n{rows}", "labels.csv": table}), Options()
    )
    assert dense(data.train) == expected


def test_columns_in_any_case_or_given(make):
    files = {"train.csv": "Id,Body,Query,Keywords\n1,b,q,x\n", "test.csv": "Keywords,Query,Body,Id\nx,q2,b2,2\n"}
    data = read(make(files), Options(text_column="Query", labels_column="Keywords"))
    assert (data.train.texts, data.train.uids, data.test.texts) == (["q"], ["1"], ["q2"])
    data = read(make(files), Options(labels_column="Keywords", uid_column="Body"))
    assert (data.train.texts, data.train.uids) == (["q"], ["b"])


def test_weights_are_in_a_separate_column(make):
    files = {"train.csv": "text,labels,weights\none,a|b,0.5|1\ntwo,a,0.25\nthree,,\n", "test.csv": "text,labels\nx,a\n"}
    data = read(make(files), Options())
    np.testing.assert_array_equal(data.train.targets.toarray(), [[0.5, 1], [0.25, 0], [0, 0]])


def test_a_single_file_holds_some_rows_out(make):
    rows = "".join(f"text {i},{i % 3}\n" for i in range(100))
    path = make({"tickets.csv": f"text,labels\n{rows}"}) / "tickets.csv"
    assert detect(path) == ("csv", "its header is: text, labels")
    data = read(path, Options())
    assert (len(data.train), len(data.test), data.name) == (90, 10, "tickets")
    assert len(read(path, Options(test_share=0.3)).test) == 30
    assert data.test.uids == read(path, Options()).test.uids != read(path, Options(seed=1)).test.uids


def test_a_split_column(make):
    rows = "text,labels,split\none,a,train\ntwo,a,Test\nthree,b,dev\nfour,b,train\n"
    data = read(make({"all.csv": rows}) / "all.csv", Options())
    assert (data.train.texts, data.val.texts, data.test.texts) == (["one", "four"], ["three"], ["two"])


def test_a_label_file_of_another_kind(make):
    rows = "".join(f"one {i},r\ntwo {i},g\n" for i in range(20))
    root = make({"all.csv": f"text,labels\n{rows}", "names.tsv": "uid\ttext\ng\tgreen\nr\tred\n"})
    data = read(root / "all.csv", Options(label_file=root / "names.tsv"))
    assert data.labels.texts == ["green", "red"]


def test_semicolons_tabs_byte_order_mark_windows_lines_and_gzip(make):
    text = "\ufefftext;labels\r\none, two;a,b\r\n\r\n" + '"x;y";a\r\n'
    data = read(make({"train.csv.gz": text, "test.csv": "text\tlabels\none\ta\n"}), Options())
    assert data.train.texts == ["one, two", "x;y"]
    assert data.labels.uids == ["a", "b"]


def test_a_very_long_cell(make):
    long = "word " * 100_000
    data = read(make(GOOD | {"train.csv": f"uid,text,labels\na,{long},r\n"}), Options())
    assert data.train.texts == [long]


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        (
            {"train.csv": "uid,body_text,labels\na,one,r\n"},
            ["train.csv: no text column among: uid, body_text, labels", "--text-column"],
        ),
        (
            {"train.csv": "uid,text,keys\na,one,r\n"},
            ["train.csv: no labels column among: uid, text, keys", "--labels-column"],
        ),
        ({"train.csv": TRAIN + "c,three\n"}, ["train.csv:4: 2 cells, but the header has 3"]),
        ({"train.csv": TRAIN + "c,three,r,r\n"}, ["train.csv:4: 4 cells"]),
        (
            {"train.csv": 'uid,text,labels\na,"x\ny",r\nb,two,z\n'},
            ["train.csv:4: label 'z' is not in the label table", "labels.csv"],
        ),
        ({"train.csv": TRAIN + "c,three,r|z\n"}, ["train.csv:4: label 'z' is not in the label table"]),
        ({"train.csv": TRAIN + 'c,"thr"ee,r\n'}, ["train.csv:4: broken quotes"]),
        ({"train.csv": TRAIN + 'c,"three,r\n'}, ["train.csv:4: broken quotes"]),
        ({"train.csv": TRAIN.encode() + b"c,\xe9,r\n"}, ["train.csv:4: byte 3 of the line is not UTF-8"]),
        ({"train.csv": ""}, ["train.csv: the file is empty"]),
        ({"train.csv": "\n\n"}, ["train.csv: this file has no header"]),
        ({"train.csv": "uid,text,labels\n"}, ["train.csv: there are no rows below the header"]),
        ({"train.csv": "uid,text,labels\na,one,\n"}, ["train.csv: no row of this file has a label"]),
        ({"labels.csv": LABELS + "r,again\n"}, ["labels.csv:4: duplicate label uid 'r', first on line 2"]),
        ({"labels.csv": "uid,text\n"}, ["labels.csv: this file holds no labels"]),
        ({"labels.csv": "uid,foo,bar\nr,1,2\n"}, ["labels.csv: no text column among: uid, foo, bar"]),
        ({"train.csv": "text,labels,weights\none,r|g,0.5\n"}, ["train.csv:2: 2 labels need as many weights"]),
        ({"train.csv": "text,labels,weights\none,r|g,0.5|x\n"}, ["train.csv:2: weight 'x' is not a number in (0, 1]"]),
        ({"train.csv": "text,labels,weights\none,r|g,0.5|nan\n"}, ["train.csv:2: weight nan"]),
        ({"train.csv": "text,labels,weights\none,r|g,0.5|0\n"}, ["train.csv:2: weight 0.0"]),
        ({"train.csv": "text,labels,weights\none,r|g,1.5|1\n"}, ["train.csv:2: weight 1.5"]),
    ],
)
def test_invalid_tables_give_errors_with_file_and_line(refused, files, parts):
    refused("csv", GOOD | files, *parts)


@pytest.mark.parametrize("bad", [7, -1])
def test_a_label_id_out_of_range(refused, bad):
    files = {"train.csv": f"text,labels\none,0|1\ntwo,{bad}\n", "test.csv": "text,labels\nx,1\n", "labels.csv": LABELS}
    refused("csv", files, f"train.csv:3: label id {bad} is out of range, the set has 2 labels")


def test_bad_options(refused):
    refused("csv", GOOD, "no column 'bdoy' among: uid, text, labels", options=Options(text_column="bdoy"))
    refused("csv", GOOD, "no column 'key' among", "--uid-column", options=Options(uid_column="key"))


def test_bad_single_files(refused):
    refused("csv", {"a.csv": "text,labels,split\none,a,holdout\n"}, "a.csv:2: split 'holdout'", file="a.csv")
    refused(
        "csv", {"a.csv": "text,labels,split\none,a,test\n"}, "a.csv: no row of this file is a train row", file="a.csv"
    )
    refused("csv", {"a.csv": "text,labels\none,a\n"}, "a.csv: ", "no train row can be held out", file="a.csv")


def test_numbers_that_are_partly_known_as_uids_are_never_positions(refused):
    labels = "uid,text\n" + "".join(f"{i},label {i}\n" for i in range(1, 50))
    files = {"train.csv": "text,labels\none,3\ntwo,0\n", "test.csv": "text,labels\nx,1\n", "labels.csv": labels}
    refused("csv", files, "train.csv:3: label '0' is not in the label table")
