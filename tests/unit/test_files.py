import gzip
import stat

import pytest

from megalabel.errors import DataError, WriteError
from megalabel.files import check_target, find, json_rows, make_folder, need, read_lines, writing, writing_folder


class Halt(Exception):
    pass


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_find_prefers_the_first_name_and_plain_files(tmp_path):
    for name in ("b.gz", "b", "a.gz"):
        (tmp_path / name).write_text("x")
    assert find(tmp_path, "a", "b").name == "a.gz"
    assert find(tmp_path, "b").name == "b"
    assert find(tmp_path, "c") is None
    assert find(tmp_path / "nowhere", "c") is None


def test_need_names_the_missing_files(tmp_path):
    (tmp_path / "file").write_text("x")
    for folder, said in (("nowhere", "no such folder"), ("file", "a folder was expected"), (".", "there is no a or b")):
        with pytest.raises(DataError, match=said):
            need(tmp_path / folder, "a", "b")


def test_plain_and_gzip_files_are_distinguished_by_content(tmp_path):
    for name, content in (("a", b"\xef\xbb\xbfone\r\ntwo"), ("b", gzip.compress(b"one\r\ntwo\n", mtime=0))):
        (tmp_path / name).write_bytes(content)
        assert list(read_lines(tmp_path / name)) == [(1, b"one\r"), (2, b"two")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a", b"", "the file is empty"),
        ("a.gz", b"", "the file is empty"),
        ("a.gz", gzip.compress(b"", mtime=0), "the file is empty"),
        ("a.gz", b"plain", "not a gzip file; compress it"),
        ("a.gz", b"\x1f\x8b", "cut off"),
        ("a.gz", gzip.compress(b"hello\n" * 99, mtime=0)[:-4], "cut off"),
        ("a.gz", gzip.compress(b"hello\n" * 99, mtime=0)[:-8] + b"12345678", "broken"),
        ("a", b"\x1f\x8b\x08 rubbish rubbish", "broken"),
    ],
)
def test_bad_files_give_one_line(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as error:
        list(read_lines(path))
    assert str(error.value).startswith(f"{path}: ")


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        list(read_lines(tmp_path / "a"))
    with pytest.raises(DataError, match="this is a folder"):
        list(read_lines(tmp_path))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_lines(tmp_path / ("x" * 300)))


def test_invalid_json_errors_have_the_line(tmp_path):
    path = tmp_path / "a.jsonl"
    for line, said in (
        (b'{"a": ', "broken JSON"),
        (b'{"a": NaN}', "NaN is no number in JSON, at column 7"),
        (b'{"a": "\xff"}', "byte 8 of the line is not UTF-8"),
        (b'"a"', "a JSON object like {...} was expected"),
    ):
        path.write_bytes(b'{"good": 1}\n\n' + line + b"\n")
        with pytest.raises(DataError) as error:
            list(json_rows(path))
        assert str(error.value).startswith(f"{path}:3: ")
        assert said in str(error.value)


def test_writing_is_atomic(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(Halt), writing(path) as out:
        out.write(b"half of the")
        raise Halt
    assert path.read_text() == "old"
    with writing(path) as out:
        out.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_written_files_have_the_usual_rights(tmp_path):
    (tmp_path / "usual").write_text("")
    with writing(tmp_path / "ours"):
        pass
    with writing_folder(tmp_path / "folder"):
        pass
    (tmp_path / "usual folder").mkdir()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes["ours"] == modes["usual"]
    assert modes["folder"] == modes["usual folder"]


def test_gzip_files_are_the_same_bytes_every_time(tmp_path):
    for name in ("a.gz", "b.gz"):
        with writing(tmp_path / name) as out:
            for i in range(1000):
                out.write(b"line %d\n" % i)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert len(list(read_lines(tmp_path / "a.gz"))) == 1000


def test_writing_where_nothing_can_be_written(tmp_path):
    said = "could not write, no such file or directory; nothing was changed"
    with pytest.raises(WriteError, match=said), writing(tmp_path / "nowhere" / "a"):
        pass
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match="could not write"), writing(tmp_path / "folder"):
        pass
    assert names(tmp_path) == ["folder"]


def test_folders_are_written_atomically(tmp_path):
    target = tmp_path / "deep" / "set"
    with pytest.raises(Halt), writing_folder(target) as folder:
        (folder / "a").write_text("half")
        raise Halt
    assert names(target.parent) == []
    with writing_folder(target) as folder:
        (folder / "a").write_text("whole")
        assert not target.exists()
    assert names(target) == ["a"]


def test_an_old_folder_stays_until_the_new_one_is_complete(tmp_path):
    target = tmp_path / "set"
    target.mkdir()
    (target / "old").write_text("x")
    with pytest.raises(Halt), writing_folder(target, overwrite=True) as folder:
        (folder / "new").write_text("y")
        raise Halt
    assert names(target) == ["old"]
    with writing_folder(target, overwrite=True) as folder:
        (folder / "new").write_text("y")
        assert names(target) == ["old"]
    assert names(target) == ["new"]
    assert names(tmp_path) == ["set"]


def test_an_old_folder_comes_back_when_the_swap_fails(tmp_path, monkeypatch):
    target = tmp_path / "set"
    target.mkdir()
    (target / "old").write_text("x")
    real = type(target).replace

    def replace(path, other):
        if path.name.endswith(".part"):
            raise OSError(28, "No space left on device")
        return real(path, other)

    monkeypatch.setattr(type(target), "replace", replace)
    monkeypatch.setattr("megalabel.disk.exchange", lambda one, other: False)  # as on systems that cannot
    said = "no space left on device; nothing was changed"
    with pytest.raises(WriteError, match=said), writing_folder(target, overwrite=True) as folder:
        (folder / "new").write_text("y")
    assert names(tmp_path) == ["set"]
    assert names(target) == ["old"]


def test_an_error_while_writing_has_the_final_name(tmp_path):
    with pytest.raises(DataError) as error, writing_folder(tmp_path / "set") as folder:
        raise DataError("bad", path=folder / "sub" / "a.txt", line=3)
    assert str(error.value) == f"{tmp_path / 'set' / 'sub' / 'a.txt'}:3: bad"


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with writing_folder(tmp_path / "link", overwrite=True) as folder:
        (folder / "new").write_text("y")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["new"]
    assert names(tmp_path) == ["link", "real"]


def test_targets_are_checked_before_long_work(tmp_path):
    check_target(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="a file of this name exists"):
        check_target(tmp_path / "file", overwrite=True)
    with pytest.raises(WriteError, match="not empty; choose another name or --overwrite"):
        check_target(tmp_path)
    check_target(tmp_path, overwrite=True)
    with pytest.raises(WriteError, match="could not write"):
        check_target(tmp_path / ("x" * 300))


def test_make_folder(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="could not create this folder"):
        make_folder(tmp_path / "file" / "b")
