import builtins
import io

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from megalabel.data.formats import Options, detect
from megalabel.data.formats.parquet import read
from megalabel.data.load import load
from megalabel.data.save import save
from megalabel.errors import DataError, MissingExtraError


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
        (b"PAR1 no", "train.parquet: not a Parquet file, or a damaged one"),
        (TRAIN[:-30], "train.parquet: not a Parquet file, or a damaged one"),
        (pack(uid=["a"], labels=[["r"]]), "train.parquet: no text column among: uid, labels"),
        (pack(text=["a", None], labels=[["r"], ["g"]]), "train.parquet:2: the text of this row is missing"),
        (pack(text=[1.5], labels=[["r"]]), "train.parquet:1: text must be a text, not 1.5"),
        (pack(text=["a"], labels=[["z"]]), "train.parquet:1: label 'z' is not in the label table"),
        (pack(text=["a"], labels=[[1.0]]), "train.parquet:1: label 1.0 is neither a text nor a whole number"),
        (pack(text=["a"], labels=[[True]]), "train.parquet:1: label True is neither"),
        (pack(text=["a"], labels=[["r", None]]), "train.parquet:1: label None is neither"),
        (pack(text=["a"], labels=[["r"]], weights=[[float("nan")]]), "train.parquet:1: weight nan"),
        (pack(text=["a"], labels=[["r"]], weights=[[0.0]]), "train.parquet:1: weight 0.0"),
        (pack(text=["a"], labels=[["r"]], weights=[[1.5]]), "train.parquet:1: weight 1.5"),
        (pack(text=["a"], labels=[["r"]], weights=[["x"]]), "train.parquet:1: weight 'x'"),
        (pack(text=["a"], labels=[["r"]], weights=[[0.5, 0.5]]), "train.parquet:1: 1 label needs as many weights"),
        (
            pack(text=pa.array([], pa.string()), labels=pa.array([], pa.list_(pa.string()))),
            "train.parquet: this file holds no rows",
        ),
    ],
)
def test_invalid_tables_give_errors_with_file_and_row(refused, content, said):
    refused("parquet", GOOD | {"train.parquet": content}, said)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([[0], [2]], "train.parquet:2: label id 2 is out of range, the set has 2 labels"),
        ([[0], [-1]], "train.parquet:2: label id -1 is out of range"),
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


def test_one_bit_of_a_page_is_noticed(tmp_path):
    """Written plainly so that the text stands in the file; without checksums the change would be read as data."""
    frame = pa.table({"uid": ["a", "b"], "text": ["a red shoe", "hat"], "labels": [["x"], ["x"]]})
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(frame, tmp_path / "train.parquet", write_page_checksum=True, **plain)
    parquet.write_table(frame, tmp_path / "test.parquet")
    content = (tmp_path / "train.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(content.replace(b"a red shoe", b"a bed shoe", 1))
    with pytest.raises(DataError, match=r"train.parquet: .*(CRC|checksum)"):
        read(tmp_path, Options())


def test_pages_are_written_with_checksums(tmp_path):
    """A file whose bytes of data are changed is refused."""
    data = load("synthetic:points=400,labels=30")
    save(data, tmp_path / "set", format="parquet")
    path = tmp_path / "set" / "train.parquet"
    content = bytearray(path.read_bytes())
    refused = 0
    for place in range(100, 2_000, 100):
        changed = bytearray(content)
        changed[place] ^= 4
        path.write_bytes(changed)
        try:
            again = read(tmp_path / "set", Options())
        except DataError:
            refused += 1
        else:
            assert again.train.texts == data.train.texts
    assert refused
