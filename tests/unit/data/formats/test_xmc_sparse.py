import pytest

from megalabel.data.formats import Options, detect
from megalabel.data.formats.xmc_sparse import read

Y_TRAIN = "3 4\n0:1.00 3:1.00\n\n2:0.5\n"
Y_TEST = "2 4\n1:1\n0:1 1:1\n"
RAW = {"raw/trn_X.txt": "one\ntwo\nthree\n", "raw/tst_X.txt": "four\nfive\n", "raw/Y.txt": "a\nb\nc\nd\n"}
GOOD = {"trn_X_Y.txt": Y_TRAIN, "tst_X_Y.txt": Y_TEST} | RAW


def test_header_then_pairs(make):
    folder = make(GOOD, "LF-WikiTitles-500K")
    assert detect(folder) == ("xmc-sparse", "it holds trn_X_Y.txt")
    data = read(folder, Options())
    assert data.train.targets.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0.5, 0]]
    assert data.train.texts == ["one", "two", "three"]
    assert (data.train.uids[1], data.test.uids[1], data.labels.uids[3]) == ("trn-1", "tst-1", "lbl-3")
    assert data.propensity == (0.5, 0.4)


@pytest.mark.parametrize(
    "names",
    [
        ("raw_data/train.raw.txt", "raw_data/test.raw.txt", "raw_data/label.raw.txt"),
        ("trn_X.txt", "tst_X.txt", "Y.txt"),
        ("trn.raw.txt", "tst.raw.txt", "lbl.raw.txt"),
        ("raw/trn_X.txt.gz", "raw/tst_X.txt.gz", "Yf.txt.gz"),
    ],
)
def test_raw_texts_under_any_name(make, names):
    files = dict(zip(names, RAW.values(), strict=True))
    data = read(make({"trn_X_Y.txt": Y_TRAIN, "tst_X_Y.txt": Y_TEST} | files), Options())
    assert data.train.texts == ["one", "two", "three"]
    assert data.labels.texts == ["a", "b", "c", "d"]


def test_uids_before_an_arrow_only_where_every_line_has_one(make):
    labels = {"raw/Y.txt": "10->a\n20->b->c\n30->\n40->d"}
    data = read(make(GOOD | labels | {"raw/trn_X.txt": "1->one\ntwo\r\n3->three\r\n"}), Options())
    assert data.labels.uids == ["10", "20", "30", "40"]
    assert data.labels.texts == ["a", "b->c", "", "d"]
    assert data.train.texts == ["1->one", "two", "3->three"]


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"trn_X_Y.txt": "4 4\n0:1\n\n\n"}, ["trn_X_Y.txt:1: ", "gives 4 rows, but there are 3"]),
        ({"trn_X_Y.txt": "2 4\n0:1\n\n2:1\n"}, ["trn_X_Y.txt:4: ", "gives 2 rows, but there are more"]),
        ({"trn_X_Y.txt": "3 5\n0:1\n\n\n"}, ["trn_X_Y.txt:1: ", "gives 5 columns, but there are 4 label texts"]),
        ({"trn_X_Y.txt": "3 4\n0:1\n4:1\n\n"}, ["trn_X_Y.txt:3: ", "label id 4 is out of range"]),
        ({"trn_X_Y.txt": "3 4\n0:1\n-1:1\n\n"}, ["trn_X_Y.txt:3: ", "label id -1 is out of range"]),
        ({"trn_X_Y.txt": "3 4\n0:1 0:1\n\n\n"}, ["trn_X_Y.txt:2: ", "duplicate label id 0"]),
        ({"trn_X_Y.txt": "3 4\n0\n\n\n"}, ["trn_X_Y.txt:2: ", "expected 'label:value', not '0'"]),
        ({"trn_X_Y.txt": "3 4\nx:1\n\n\n"}, ["trn_X_Y.txt:2: ", "'x:1'"]),
        ({"trn_X_Y.txt": "3 4\n1.5:1\n\n\n"}, ["trn_X_Y.txt:2: ", "'1.5:1'"]),
        ({"trn_X_Y.txt": "3 4\n0:nan\n\n\n"}, ["trn_X_Y.txt:2: ", "weight nan is not a number in (0, 1]"]),
        ({"trn_X_Y.txt": "3 4\n0:2\n\n\n"}, ["trn_X_Y.txt:2: ", "weight 2.0"]),
        ({"trn_X_Y.txt": "3 4\n0:0\n\n\n"}, ["trn_X_Y.txt:2: ", "weight 0.0"]),
        ({"trn_X_Y.txt": "3 4\n\n\n\n"}, ["trn_X_Y.txt: ", "no positives"]),
        ({"trn_X_Y.txt": "rows cols\n"}, ["trn_X_Y.txt:1: ", "expected a header 'rows columns'"]),
        ({"trn_X_Y.txt": f"{'9' * 5000} 4\n"}, ["trn_X_Y.txt:1: ", "header"]),
        ({"trn_X_Y.txt": "99999999999999 4\n0:1\n"}, ["trn_X_Y.txt:1: ", "but there are 1"]),
        ({"trn_X_Y.txt": "3\n"}, ["trn_X_Y.txt:1: ", "header"]),
        ({"trn_X_Y.txt": ""}, ["trn_X_Y.txt: the file is empty"]),
        ({"trn_X_Y.txt": "3 100 4\n0,3 5:0.1\n"}, ["trn_X_Y.txt:1: ", "older format", "raw texts"]),
        ({"raw/trn_X.txt": "one\ntwo\n"}, ["trn_X.txt: 2 lines, but trn_X_Y.txt has 3 rows"]),
        ({"raw/tst_X.txt": "a\n\xff"}, []),
    ],
)
def test_invalid_files_give_errors_with_file_and_line(refused, files, parts):
    files = {name: text.encode("latin-1") for name, text in files.items()}
    refused("xmc-sparse", GOOD | files, *parts)


@pytest.mark.parametrize("missing", RAW)
def test_missing_texts_list_the_valid_names(refused, missing):
    files = {name: text for name, text in GOOD.items() if name != missing}
    refused("xmc-sparse", files, "texts are missing", missing)


@pytest.mark.parametrize("header", ["15539 5000 3993", "3 4"])
def test_a_single_file_without_texts_is_recognised_and_refused(make, refused, header):
    files = {"train.txt": f"{header}\n446,521 0:0.08 1:0.02\n"}
    assert detect(make(files) / "train.txt")[0] == "xmc-sparse"
    refused("xmc-sparse", files, "train.txt", "no texts", file="train.txt")


def test_blank_lines_at_the_end_are_no_rows(make):
    assert len(read(make(GOOD | {"tst_X_Y.txt": Y_TEST + "\n\n"}), Options()).test) == 2


@pytest.mark.parametrize("cell", ["1_0:1", "1:0_1", "\u0661:1", "+1:1", "0x1:1", "1:0x1"])
def test_numbers_are_ascii_digits(refused, cell):
    refused("xmc-sparse", GOOD | {"trn_X_Y.txt": f"3 4\n{cell}\n\n\n"}, "trn_X_Y.txt:2: expected 'label:value'")
