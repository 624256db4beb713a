import io

import numpy as np
import pytest
from scipy import sparse

from megalabel.data.formats import Options, detect
from megalabel.data.formats.dexml import read

RAW = {"raw/trn_X.txt": "one\ntwo\n", "raw/tst_X.txt": "three\n", "raw/Y.txt": "a\nb\nc\n"}
TRIPLETS = sparse.coo_matrix((1, 1)).format.encode()


def npz(rows, kind=sparse.csr_matrix, dtype=np.float64):
    out = io.BytesIO()
    sparse.save_npz(out, kind(np.array(rows, dtype=dtype)))
    return out.getvalue()


def parts(**arrays):
    """Return an npz with hand-made csr parts."""
    out = io.BytesIO()
    good = {"format": b"csr", "shape": [2, 3], "indptr": [0, 1, 2], "indices": [0, 1], "data": [1.0, 1.0]}
    np.savez(out, **(good | arrays))
    return out.getvalue()


GOOD = RAW | {"Y.trn.npz": npz([[1, 0, 1], [0, 1, 0]]), "Y.tst.npz": npz([[0, 0, 1]])}


def test_raw_texts_and_matrices(make):
    folder = make(GOOD | {"filter_labels_train.txt": "0 1\n", "tst_filter_labels.txt": "0 0\n"}, "EURLex-4K")
    assert detect(folder) == ("dexml", "it holds Y.trn.npz")
    data = read(folder, Options())
    assert data.train.texts == ["one", "two"]
    assert data.train.targets.toarray().tolist() == [[1, 0, 1], [0, 1, 0]]
    assert data.train.targets.dtype == np.float32
    assert data.train.filter.tolist() == [[0, 1]]
    assert data.test.filter.tolist() == [[0, 0]]


@pytest.mark.parametrize("kind", [sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array, sparse.bsr_matrix])
@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32])
def test_any_sparse_kind(make, kind, dtype):
    data = read(make(GOOD | {"Y.trn.npz": npz([[1, 0, 1], [0, 1, 0]], kind, dtype)}), Options())
    assert data.train.targets.toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


def test_graded_relevance_is_divided_by_the_largest_of_all_splits(make):
    files = {"Y.trn.npz": npz([[4, 0, 1], [0, 2, 0]]), "Y.tst.npz": npz([[0, 0, 2]])}
    data = read(make(GOOD | files), Options())
    assert data.train.targets.toarray().tolist() == [[1, 0, 0.25], [0, 0.5, 0]]
    assert data.test.targets.toarray().tolist() == [[0, 0, 0.5]]


def test_explicit_zeros_are_dropped(make):
    data = read(make(GOOD | {"Y.trn.npz": parts(data=[1.0, 0.0])}), Options())
    assert data.train.targets.nnz == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (npz([[1, 0, -1], [0, 1, 0]]), "Y.trn.npz:1: relevance -1.0"),
        (npz([[1, 0, 0], [0, np.nan, 0]]), "Y.trn.npz:2: relevance nan"),
        (npz([[1, 0, 0], [0, np.inf, 0]]), "Y.trn.npz:2: relevance inf"),
        (npz([[1, 0], [0, 1]]), "Y.trn.npz: the matrix has 2 columns, but there are 3 label texts"),
        (npz([[1, 0, 0]]), "trn_X.txt: 2 lines, but Y.trn.npz has 1 rows"),
        (npz([[0, 0, 0], [0, 0, 0]]), "Y.trn.npz: no row of this file has a label"),
        (parts(indices=[0, 3]), "Y.trn.npz: "),
        (parts(indices=[0, -1]), "Y.trn.npz: "),
        (parts(indptr=[0, 5, 2]), "Y.trn.npz: "),
        (parts(indptr=[0, 2, 2], indices=[1, 1]), "Y.trn.npz:1: duplicate label id 1"),
        (parts(format=b"csc", indptr=[0, 1, 2, 2], indices=[0, 9]), "Y.trn.npz: "),
        (parts(shape=[2, 10**12]), "Y.trn.npz: "),
        (parts(shape=[10**15, 3]), "Y.trn.npz"),
        (
            parts(format=TRIPLETS, shape=[10**15, 3], row=[0], col=[0], data=[1.0]),
            "Y.trn.npz has 1,000,000,000,000,000 rows",
        ),
        (parts(format=b"xyz"), "Y.trn.npz: "),
        (parts(data=np.array([{}, {}], dtype=object)), "Y.trn.npz: "),
        (parts(data=np.array(["a", "b"])), "Y.trn.npz: "),
        (b"", "Y.trn.npz: "),
        (b"PK\x03\x04 not a zip", "Y.trn.npz: "),
        (npz([[1, 0, 1], [0, 1, 0]])[:200], "Y.trn.npz: "),
    ],
)
def test_an_invalid_matrix_gives_one_line(refused, content, said):
    refused("dexml", GOOD | {"Y.trn.npz": content}, said)


def test_pickled_objects_are_never_loaded(refused, tmp_path):
    """An object array would run code when unpickled; it must be refused, not loaded."""

    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    refused("dexml", GOOD | {"Y.trn.npz": parts(data=np.array([Trap(), Trap()], dtype=object))}, "not a sparse matrix")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("missing", RAW)
def test_missing_texts(refused, missing):
    refused("dexml", {name: text for name, text in GOOD.items() if name != missing}, "texts are missing", missing)


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ('{"uid": "x"}\n', "trn_X.rows.jsonl: 1 rows, but trn_X.txt has 2 lines"),
        ('{"uid": "x"}\n' * 3, "trn_X.rows.jsonl: 3 rows, but trn_X.txt has 2 lines"),
        ('{"uid": "x"}\n{"text": "y"}\n', 'trn_X.rows.jsonl:2: the key "uid" is missing'),
        ('{"uid": "x"}\n{"uid": "y", "text": 1.5}\n', 'trn_X.rows.jsonl:2: "text" must be a text'),
        ('{"uid": "x"}\n{\n', "trn_X.rows.jsonl:2: broken JSON"),
    ],
)
def test_side_file_errors_have_the_line(refused, side, said):
    refused("dexml", GOOD | {"raw/trn_X.rows.jsonl": side}, said)


def test_labels_that_share_a_uid(refused):
    refused("dexml", GOOD | {"raw/Y.txt": "1->a\n2->b\n1->c\n"}, "Y.txt:3: duplicate label uid '1', first on line 1")
