"""Every format round-trips a data set, is detected, or gives a one-line error."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.formats import FORMATS, Options, detect, get_format
from megalabel.data.formats.objects import from_frames, to_frames
from megalabel.data.save import save
from megalabel.errors import DataError, MegalabelError, SettingError, WriteError

NASTY = [
    "tab\tinside",
    'quote " inside',
    '"quoted"',
    '"',
    "line\nbreak",
    "windows\r\nbreak",
    "lone\rreturn",
    "ends in return\r",
    "ends in newline\n",
    "\nstarts with newline",
    "emoji 🦆 👩‍👩‍👧 \U0001f3f3\ufe0f",
    "عربي 123 עברית",
    "  blanks around  ",
    "",
    " ",
    "\x01\x02 control \x1e\x1f\x7f",
    "nul \0 inside",
    "separators \u2028 \u2029 \x85 \x0b \x0c end",
    "a -> b",
    "uid->text",
    "comma, semicolon; pipe|",
    "\ufeffmark first",
    "[1, 2]",
    '["x"]',
    "{}",
    "null",
    "NaN",
    "=1+1",
    "back\\slash \\n",
    "e\u0301 and é",
]
PLAIN_UIDS = [f"label {i}" for i in range(7)]
NASTY_UIDS = ["a|b", "c;d", "e,f", "g h", 'i"j', "k\tl", " m "]
HARSH_UIDS = ["", "[]", "|;, \x1e\x1f", '["a"]', "line\nbreak", "\r", "0"]


def matrix(rows):
    """Build a csr matrix [len(rows), 7] of {label: weight} rows."""
    cells = [(i, label, weight) for i, row in enumerate(rows) for label, weight in sorted(row.items())]
    r, c, v = zip(*cells, strict=True)
    return sparse.csr_matrix((np.array(v, dtype=np.float32), (r, c)), shape=(len(rows), 7))


def nasty_set(uids=PLAIN_UIDS, soft=True, name="nasty set"):
    """Return a set with everything a format may lose."""
    weights = [1.0, 0.1, 1e-7, 0.7, 1 / 3] if soft else [1.0]
    rows = [{} if i % 5 == 4 else {j: weights[(i + j) % len(weights)] for j in {i % 7, 3 * i % 7}} for i in range(30)]
    pairs = np.array([[2, 6], [0, 0], [2, 1]], dtype=np.int64)
    order = NASTY[::-1]
    return Dataset(
        train=Split(NASTY, matrix(rows), [f"q{i}" for i in range(30)], pairs),
        val=Split(["v", "w\n"], matrix([{0: weights[-1]}, {}]), ["trn-0", "v,2"], pairs[1:2]),
        test=Split(order, matrix(rows[::-1]), [f'"t\t{i}' for i in range(30)], pairs[:2] + np.array([[1, 0]])),
        labels=Labels([f"{text} {i}" for i, text in enumerate(NASTY[3:10])], list(uids)),
        name=name,
        about="about\n'this'",
        licence="CC0",
        propensity=(0.6, 2.6),
    )


def assert_same(data, other, card=True):
    assert list(data.labels.uids) == list(other.labels.uids)
    assert list(data.labels.texts) == list(other.labels.texts)
    assert list(data.splits) == list(other.splits)
    for name, split in data.splits.items():
        back = other.splits[name]
        assert list(split.uids) == list(back.uids)
        assert list(split.texts) == list(back.texts)
        assert back.targets.dtype == np.float32
        assert split.targets.shape == back.targets.shape
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(
                getattr(split.targets.sorted_indices(), part), getattr(back.targets.sorted_indices(), part)
            )
        if card:
            np.testing.assert_array_equal(split.filter, back.filter)
    if card:
        for key in ("name", "about", "licence", "propensity", "points"):
            assert getattr(data, key) == getattr(other, key)
        np.testing.assert_array_equal(data.counts, other.counts)


def round_trip(data, name, folder):
    save(data, folder, format=name)
    assert detect(folder)[0] == name
    return get_format(name).read(folder, Options())


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """Save time: no test here pulls the plug."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("uids", [PLAIN_UIDS, NASTY_UIDS, HARSH_UIDS], ids=["plain", "nasty", "harsh"])
@pytest.mark.parametrize("soft", [True, False], ids=["soft", "hard"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_saved_set_is_detected_and_round_trips(name, soft, uids, tmp_path):
    data = nasty_set(uids, soft)
    assert_same(data, round_trip(data, name, tmp_path / "set"))


@pytest.mark.parametrize("name", FORMATS)
def test_generated_uids_and_a_set_without_val_or_filters(name, tmp_path):
    data = Dataset.from_lists([("a->b", [0]), ("c->d", [1, 0]), ("", [])], [("e", [1])], ["x", "y"], name="small")
    assert_same(data, round_trip(data, name, tmp_path / "set"))


@pytest.mark.parametrize("name", FORMATS)
def test_writing_twice_gives_the_same_content(name, tmp_path):
    data = nasty_set()
    first = round_trip(data, name, tmp_path / "one")
    assert_same(first, round_trip(first, name, tmp_path / "two"))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(NASTY)


@st.composite
def sets(draw):
    """Draw sets of 1 to 5 labels and a few rows; uids of points are unique, as BEIR needs."""
    names = draw(st.lists(texts, min_size=1, max_size=5, unique=True))
    size = len(names)

    def split(prefix):
        rows = draw(st.lists(st.tuples(texts, st.sets(st.integers(0, size - 1))), min_size=1, max_size=5))
        rows[0] = (rows[0][0], rows[0][1] | {0})
        soft = draw(st.booleans())
        ids = [sorted(row) for _, row in rows]
        count = sum(map(len, ids))
        numbers = st.floats(2.0**-149, 1.0, width=32)
        values = draw(st.lists(numbers, min_size=count, max_size=count)) if soft else [1.0] * count
        indptr = np.cumsum([0, *map(len, ids)])
        flat = np.array([i for row in ids for i in row], dtype=np.int64)
        targets = sparse.csr_matrix((np.array(values, dtype=np.float32), flat, indptr), shape=(len(rows), size))
        uids = [f"{prefix}{draw(texts)}{i}" for i in range(len(rows))]
        pairs = st.tuples(st.integers(0, len(rows) - 1), st.integers(0, size - 1))
        filtered = np.array(draw(st.lists(pairs, max_size=3)), dtype=np.int64).reshape(-1, 2)
        return Split([text for text, _ in rows], targets, uids, filtered)

    labels = Labels(draw(st.lists(texts, min_size=size, max_size=size)), names)
    val = split("v") if draw(st.booleans()) else None
    constants = draw(st.tuples(st.floats(0.1, 1), st.floats(0.1, 5)))
    return Dataset(train=split("a"), test=split("b"), val=val, labels=labels, name=draw(texts), propensity=constants)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=12)
@given(data=sets())
def test_any_text_survives(name, data, tmp_path_factory):
    assert_same(data, round_trip(data, name, tmp_path_factory.mktemp("any") / "set"))


@pytest.mark.parametrize("kind", ["pandas", "polars", "datasets"])
@pytest.mark.parametrize("uids", [PLAIN_UIDS, NASTY_UIDS, HARSH_UIDS], ids=["plain", "nasty", "harsh"])
def test_frames_round_trip(kind, uids):
    data = nasty_set(uids)
    frames = to_frames(data, kind)
    assert set(frames) == {"train", "val", "test", "labels"}
    assert_same(data, from_frames(**frames), card=False)


# ------------------------------------------------------------------------ bad input


def one_line(error, *parts):
    text = str(error.value if hasattr(error, "value") else error)
    assert "\n" not in text
    for part in parts:
        assert str(part) in text, text
    return text


def main_file(folder, name):
    """Return the file of a written set that holds the train rows."""
    names = {"folder": "trn.jsonl.gz", "xmc-json": "trn.json.gz", "dexml": "Y.trn.npz", "xmc-sparse": "trn_X_Y.txt"}
    names |= {
        "beir": "qrels/train.tsv",
        "annif": "train.jsonl",
        "csv": "train.csv",
        "tsv": "train.tsv",
        "parquet": "train.parquet",
    }
    return folder / names[name]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Save the set once in every format."""
    folder = tmp_path_factory.mktemp("library")
    for name in FORMATS:
        save(nasty_set(), folder / name, format=name)
    return folder


@pytest.fixture
def written(library, tmp_path):
    """Return the train file of a fresh copy of the set in a format."""

    def copy(name):
        shutil.copytree(library / name, tmp_path / "set")
        return main_file(tmp_path / "set", name)

    return copy


def refuse(name, folder):
    with pytest.raises(DataError) as error:
        get_format(name).read(folder, Options())
    return error


@pytest.mark.parametrize("name", FORMATS)
class TestBadInput:
    def root(self, path):
        return path.parent.parent if path.parent.name == "qrels" else path.parent

    def test_no_such_folder(self, name, tmp_path):
        one_line(refuse(name, tmp_path / "nothing"), "nothing")
        with pytest.raises(DataError) as error:
            detect(tmp_path / "nothing")
        one_line(error, "no such file or folder")

    def test_a_missing_train_file(self, name, written):
        path = written(name)
        path.unlink()
        one_line(refuse(name, self.root(path)), path.name.removesuffix(".gz").split(".")[0], "there is no")

    def test_an_empty_file(self, name, written):
        path = written(name)
        path.write_bytes(b"")
        one_line(refuse(name, self.root(path)), path.name)

    def test_a_cut_file(self, name, written):
        if name in {"beir", "csv", "tsv"}:
            pytest.skip("a plain table does not say how long it is")
        path = written(name)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        one_line(refuse(name, self.root(path)))

    @pytest.mark.parametrize("seed", range(6))
    def test_random_bytes_never_give_a_traceback(self, name, written, seed):
        path = written(name)
        generator = np.random.default_rng(seed)
        content = bytearray(path.read_bytes())
        for place in generator.integers(0, len(content), 5):
            content[place] = generator.integers(256)
        path.write_bytes(content)
        try:
            get_format(name).read(self.root(path), Options())
        except MegalabelError as error:
            one_line(error)

    def test_not_utf8(self, name, written):
        path = written(name)
        if name == "dexml":
            path = path.parent / "raw" / "trn_X.txt"
        if name == "parquet":
            pytest.skip("Parquet checks its texts itself")
        packed = path.suffix == ".gz"
        content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        lines = content.split(b"\n")
        lines[1] = lines[1][:1] + b"\xff\xfe" + lines[1][1:]
        path.write_bytes(gzip.compress(b"\n".join(lines)) if packed else b"\n".join(lines))
        root = path.parent.parent if name == "dexml" else self.root(path)
        one_line(refuse(name, root), f"{path.name}:2", "UTF-8")

    def test_a_filter_pair_out_of_range(self, name, written):
        root = self.root(written(name))
        path = next(root.glob("filter*tr*n.txt*"))
        path.write_bytes(gzip.compress(b"0 0\n0 7\n") if path.suffix == ".gz" else b"0 0\n0 7\n")
        one_line(refuse(name, root), f"{path.name}:2", "0 7", "out of range")

    def test_a_filter_line_that_is_not_a_pair(self, name, written):
        root = self.root(written(name))
        path = next(root.glob("filter*tr*n.txt*"))
        path.write_bytes(gzip.compress(b"0 0\n1\n") if path.suffix == ".gz" else b"0 0\n1\n")
        one_line(refuse(name, root), f"{path.name}:2", "two whole numbers")

    def test_a_broken_card(self, name, written):
        root = self.root(written(name))
        (root / "card.json").write_text('{"name": "x",\n')
        one_line(refuse(name, root), "card.json:")
        (root / "card.json").write_text('{"propensity": [1]}')
        one_line(refuse(name, root), "card.json", "propensity")

    def test_no_test_rows(self, name, tmp_path):
        rows = [(f"text {i}", [i % 2]) for i in range(20)]
        save(Dataset.from_lists(rows, rows, ["x", "y"]), tmp_path / "set", format=name)
        for path in [p for p in (tmp_path / "set").rglob("*") if p.name.lower().startswith(("tst", "test", "y.tst"))]:
            path.unlink()
        one_line(refuse(name, tmp_path / "set"), "no test rows", "--test-share")
        data = get_format(name).read(tmp_path / "set", Options(test_share=0.2))
        assert (len(data.train), len(data.test)) == (16, 4)

    def test_text_that_utf8_cannot_encode(self, name, tmp_path):
        data = Dataset.from_lists([("lone \ud800 surrogate", [0])], [("a", [0])], ["x"])
        with pytest.raises(MegalabelError) as error:
            save(data, tmp_path / "set", format=name)
        one_line(error, tmp_path / "set")
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_in_the_way(self, name, tmp_path):
        data = nasty_set()
        (tmp_path / "set").mkdir()
        (tmp_path / "set" / "precious").write_text("keep")
        with pytest.raises(WriteError) as error:
            save(data, tmp_path / "set", format=name)
        one_line(error, "set", "not empty", "--overwrite")
        with pytest.raises(WriteError) as error:
            save(data, tmp_path / "set", format=name, overwrite=True)
        one_line(error, "set", "something other than a data set")
        assert (tmp_path / "set" / "precious").read_text() == "keep"
        (tmp_path / "set" / "precious").unlink()
        for _ in range(2):
            save(data, tmp_path / "set", format=name, overwrite=True)
        assert_same(data, get_format(name).read(tmp_path / "set", Options()))
        assert [path.name for path in tmp_path.iterdir()] == ["set"]

    def test_an_unreadable_folder(self, name, written):
        root = self.root(written(name))
        with unprivileged(root):
            one_line(refuse(name, root), root)
            with pytest.raises(DataError) as error:
                detect(root)
            one_line(error, root, "permission denied")


@contextmanager
def unprivileged(folder):
    """Take every right to the folder away; root gives up being root for a while."""
    user = os.geteuid()
    folder.chmod(0)
    parents = [parent for parent in folder.parents if user == 0 and parent.stat().st_mode & 0o001 == 0]
    modes = [(parent, parent.stat().st_mode) for parent in parents]
    for parent in parents:
        parent.chmod(parent.stat().st_mode | 0o011)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o755)
        for parent, mode in modes:
            parent.chmod(mode)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "set").write_text("keep")
    with pytest.raises(WriteError) as error:
        save(nasty_set(), tmp_path / "set", overwrite=True)
    one_line(error, "set", "a file of this name exists")
    assert (tmp_path / "set").read_text() == "keep"


DISK_FULL = """
import json, resource, sys
from pathlib import Path
from megalabel.data.dataset import Dataset
from megalabel.data.formats import FORMATS
from megalabel.data.save import save
from megalabel.errors import WriteError

rows = [(f"text {i * 7919 % 1000003} {i * 104729 % 1000003}", [i % 50]) for i in range(4000)]
data = Dataset.from_lists(rows, rows[:100], [f"label {i}" for i in range(50)])
parent = Path(sys.argv[1])
said = {}
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))
for name in FORMATS:
    try:
        save(data, parent / name, format=name, overwrite=True)
    except WriteError as error:
        said[name] = str(error)
    except BaseException as error:
        said[name] = repr(error)
print(json.dumps(said))
"""


def test_a_full_disk_keeps_the_old_set_and_leaves_no_files(tmp_path):
    """A real limit on the size of files stands in for the full disk: the write fails half-way, in the kernel."""
    data = nasty_set()
    for name in FORMATS:
        save(data, tmp_path / name, format=name)
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    said = json.loads(done.stdout)
    assert set(said) == set(FORMATS)
    for name, text in said.items():
        assert "could not write, file too large; nothing was changed" in text, (name, text)
        assert str(tmp_path / name) in text
        assert_same(data, get_format(name).read(tmp_path / name, Options()))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FORMATS)
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith((".part", ".old"))]


def test_an_unknown_format_suggests_the_nearest():
    with pytest.raises(SettingError) as error:
        get_format("parket")
    one_line(error, "did you mean 'parquet'?")


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"hello", b"\x1f\x8b broken", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("ending", ["", ".txt", ".bin", ".json", ".jsonl", ".gz", ".npz"])
def test_other_files_are_not_a_data_set(content, ending, tmp_path):
    path = tmp_path / f"odd{ending}"
    path.write_bytes(content)
    for name in FORMATS:
        assert get_format(name).looks_like(path) is None
        assert get_format(name).looks_like(tmp_path) is None
    with pytest.raises(DataError) as error:
        detect(path)
    one_line(error, path, "no known data format", "--from")
    with pytest.raises(DataError):
        detect(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_invalid_files_under_the_right_names_give_one_line(name, written, tmp_path):
    """Every file of every format, replaced by each of several odd contents."""
    written(name)
    for path in [path for path in (tmp_path / "set").rglob("*") if path.is_file()]:
        good = path.read_bytes()
        for content in (b"", b"\n", b"\x00\x01", b"\x1f\x8b\x08", b"\xff\xff\n", b"[]\n", b"{}\n", b'{"uid": 1}\n'):
            path.write_bytes(content)
            try:
                get_format(name).read(Path(tmp_path / "set"), Options())
            except MegalabelError as error:
                one_line(error, tmp_path / "set")
        path.write_bytes(good)
    assert_same(nasty_set(), get_format(name).read(tmp_path / "set", Options()))
