import builtins
import io

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from megalabel.data.formats import Options, detect
from megalabel.data.formats.parquet import read
from megalabel.errors import MissingExtraError


def pack(**columns):
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


LABELS = pack(uid=["r", "g"], text=["red", "green"])
TEST = pack(text=["three"], labels=[["r"]])
TRAIN = pack(uid=["a", "b"], text=["one", "two"], labels=[["r", "g"], ["g"]])
GOOD = {"train.parquet": TRAIN, "test.parquet": TEST, "labels.parquet": LABELS}


def test_a_folder(make):
    folder = make(GOOD)
    assert detect(folder) == ("parquet", "it holds train.parquet")
    data = read(folder, Options())
    assert data.train.targets.toarray().tolist() == [[1, 1], [0, 1]]
    assert (data.train.uids, data.test.uids, data.labels.texts) == (["a", "b"], ["tst-0"], ["red", "green"])


@pytest.mark.parametrize(
    "labels",
    [
        [["r", "g"], ["g"]],
        [["red", "green"], ["green"]],
        [[0, 1], [1]],
        ["r|g", "g"],
        pa.array([["r", "g"], ["g"]], pa.large_list(pa.large_string())),
        pa.array([["r", "g"], ["g"]]).cast(pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    ],
)
def test_uids_texts_ids_or_separated_text(make, labels):
    table = pack(text=["one", "two"], labels=labels)
    data = read(make(GOOD | {"train.parquet": table, "test.parquet": table}), Options())
    assert data.train.targets.toarray().tolist() == [[1, 1], [0, 1]]


def test_a_single_file_with_weights_and_missing_labels(make):
    rows = pack(text=["a", "b", "c"] * 9, labels=[["x", "y"], ["y"], None] * 9, weights=[[0.5, 1.0], [0.25], None] * 9)
    path = make({"points.parquet": rows}) / "points.parquet"
    assert detect(path) == ("parquet", "it starts with PAR1")
    data = read(path, Options())
    assert data.name == "points"
    assert set(np.unique(data.train.targets.data)) == {0.25, 0.5, 1.0}


def test_whole_numbers_without_a_label_table_are_names_in_order(make):
    files = {
        "train.parquet": pack(text=["a", "b"], labels=[[10, 9], [2]]),
        "test.parquet": pack(text=["c"], labels=[[2]]),
    }
    assert read(make(files), Options()).labels.uids == ["2", "9", "10"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "train.parquet"),
        (b"PAR1 no", "train.parquet: this is not a Parquet file, or a broken one"),
        (TRAIN[:-30], "train.parquet: this is not a Parquet file, or a broken one"),
        (pack(uid=["a"], labels=[["r"]]), "train.parquet: no text column among: uid, labels"),
        (pack(text=["a", None], labels=[["r"], ["g"]]), "train.parquet:2: the text of this row is missing"),
        (pack(text=[1.5], labels=[["r"]]), "train.parquet:1: text must be a text, not 1.5"),
        (pack(text=["a"], labels=[["z"]]), "train.parquet:1: label 'z' is not in the label table"),
        (pack(text=["a"], labels=[["g", "g"]]), "train.parquet:1: duplicate label 'g'"),
        (pack(text=["a"], labels=[[1.0]]), "train.parquet:1: label 1.0 is neither a text nor a whole number"),
        (pack(text=["a"], labels=[[True]]), "train.parquet:1: label True is neither"),
        (pack(text=["a"], labels=[["r", None]]), "train.parquet:1: label None is neither"),
        (pack(text=["a"], labels=[["r"]], weights=[[float("nan")]]), "train.parquet:1: weight nan"),
        (pack(text=["a"], labels=[["r"]], weights=[[0.0]]), "train.parquet:1: weight 0.0"),
        (pack(text=["a"], labels=[["r"]], weights=[[1.5]]), "train.parquet:1: weight 1.5"),
        (pack(text=["a"], labels=[["r"]], weights=[["x"]]), "train.parquet:1: weight 'x'"),
        (pack(text=["a"], labels=[["r"]], weights=[[0.5, 0.5]]), "train.parquet:1: 1 labels need as many weights"),
        (
            pack(text=pa.array([], pa.string()), labels=pa.array([], pa.list_(pa.string()))),
            "train.parquet: this file holds no rows",
        ),
    ],
)
def test_bad_tables_are_told_with_file_and_row(refused, content, said):
    refused("parquet", GOOD | {"train.parquet": content}, said)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([[0], [2]], "train.parquet:2: label id 2 is out of range, the set has 2 labels"),
        ([[0], [-1]], "train.parquet:2: label id -1 is out of range"),
        ([[0], [1, 1]], "train.parquet:2: duplicate label 1"),
    ],
)
def test_bad_label_ids(refused, labels, said):
    test = pack(text=["c"], labels=[[0]])
    refused("parquet", GOOD | {"train.parquet": pack(text=["a", "b"], labels=labels), "test.parquet": test}, said)


def test_a_missing_pyarrow_says_what_to_install(make, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    folder = make(GOOD)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError) as error:
        read(folder, Options())
    assert str(error.value) == "reading Parquet needs the package pyarrow; pip install 'megalabel[parquet]'"
