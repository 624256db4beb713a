"""Saves outlive kills and power cuts, and leave nothing behind."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from megalabel import disk
from megalabel.disk import claimed, remove_abandoned
from megalabel.errors import DataError, WriteError
from megalabel.files import read_whole, writing, writing_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fill(target, content="new"):
    with writing_folder(target, overwrite=True) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text(content)
        (folder / "card").write_text(content)


def content(target):
    return (target / "card").read_text(), (target / "deep" / "file").read_text()


def in_child(work):
    """Call ``work`` in a process that ends as it ends; return the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def without_exchange(monkeypatch):
    """Behave as systems do that cannot exchange two names."""
    monkeypatch.setattr(disk, "exchange", lambda one, other: False)


def test_a_kill_between_two_renames_leaves_the_old_version(tmp_path, without_exchange):
    target = tmp_path / "set"
    fill(target, "old")

    def work():
        real = type(target).replace
        type(target).replace = lambda path, other: die() if path.suffix == ".part" else real(path, other)
        fill(target)

    assert in_child(work) == signal.SIGKILL
    assert not target.exists()
    remove_abandoned(target)
    assert content(target) == ("old", "old")
    assert names(tmp_path) == ["set"]
    fill(target)
    assert content(target) == ("new", "new")


def test_forty_kills_leave_no_hidden_folder(tmp_path):
    """The kills come at forty moments of a save, of which most are in the middle of it."""
    target = tmp_path / "set"
    fill(target, "old")
    for number in range(40):

        def work(stop=number % 14):
            calls = iter(range(100))
            real = os.fsync
            os.fsync = lambda handle: die() if next(calls) == stop else real(handle)
            fill(target, "old")

        in_child(work)
        assert content(target) == ("old", "old")
    fill(target)
    assert names(tmp_path) == ["set"]


def test_a_living_writer_is_left_alone(tmp_path):
    script = """
import sys, time
from megalabel.files import writing_folder
with writing_folder(sys.argv[1], overwrite=True) as folder:
    print(folder, flush=True)
    sys.stdin.readline()
    (folder / "card").write_text("theirs")
"""
    target = tmp_path / "set"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script, target], **pipes) as other:
        theirs = other.stdout.readline().strip()
        fill(target)
        remove_abandoned(target)
        assert Path(theirs).is_dir()
        other.communicate("\n")
    assert (target / "card").read_text() == "theirs"
    assert names(tmp_path) == ["set"]


def test_files_of_killed_writers_are_removed(tmp_path):
    def work():
        with writing(tmp_path / "a.txt") as out:
            out.write(b"half")
            out.flush()
            die()

    assert in_child(work) == signal.SIGKILL
    assert len(names(tmp_path)) == 1
    with writing(tmp_path / "a.txt") as out:
        out.write(b"whole")
    assert names(tmp_path) == ["a.txt"]


def test_cleaning_up_never_takes_a_name_that_is_being_made(tmp_path):
    """One thread makes temporary names, another removes all that seem abandoned."""
    target, ended = tmp_path / "set", threading.Event()

    def clean():
        while not ended.is_set():
            remove_abandoned(target)

    thread = threading.Thread(target=clean)
    thread.start()
    try:
        for _ in range(300):
            with claimed(target, folder=True) as temporary:
                (temporary / "file").touch()
    finally:
        ended.set()
        thread.join()
    assert names(tmp_path) == []


@pytest.mark.parametrize("folder", [True, False])
def test_a_name_taken_for_abandoned_is_made_again(tmp_path, monkeypatch, folder):
    """As when another process looks between the making of a name and its lock."""
    target, looked = tmp_path / "set", []
    mkdir, lock = type(target).mkdir, disk._lock

    def look():
        if not looked:
            looked.append(None)
            remove_abandoned(target)

    monkeypatch.setattr(type(target), "mkdir", lambda path, *a, **k: mkdir(path, *a, **k) or look())
    monkeypatch.setattr(disk, "_lock", lambda handle, **k: (None if folder else look(), lock(handle, **k))[1])
    with claimed(target, folder=folder) as temporary:
        assert temporary.exists()
        assert looked
    assert names(tmp_path) == []


def test_the_old_version_is_locked_until_the_new_one_is_flushed(tmp_path, monkeypatch):
    """Another process that cleans up in this moment must not remove what may have to come back."""
    target = tmp_path / "set"
    fill(target, "old")
    fsync, parent = os.fsync, tmp_path.stat().st_ino

    def fail(handle):
        if os.fstat(handle).st_ino == parent:
            in_child(lambda: remove_abandoned(target))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteError, match="nothing was changed"):
        fill(target)
    assert content(target) == ("old", "old")


def test_files_get_the_rights_of_the_umask_whoever_wrote_them(tmp_path):
    before = os.umask(0o027)
    try:
        with writing_folder(tmp_path / "set") as folder:
            (folder / "sub").mkdir()
            for path in (folder / "private", folder / "sub" / "private"):
                path.touch(0o600)
    finally:
        os.umask(before)
    paths = (tmp_path / "set", tmp_path / "set" / "private", tmp_path / "set" / "sub" / "private")
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o750, 0o640, 0o640]


def test_all_is_flushed_before_the_old_version_goes(tmp_path, monkeypatch):
    events, target = [], tmp_path / "set"
    fill(target, "old")
    old = (target / "card").stat().st_ino
    fsync, exchange, unlink = os.fsync, disk.exchange, os.unlink
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.fstat(handle).st_ino) or fsync(handle))
    monkeypatch.setattr(disk, "exchange", lambda *paths: events.append("exchange") or exchange(*paths))
    monkeypatch.setattr(os, "unlink", lambda *a, **k: events.append("unlink") or unlink(*a, **k))
    fill(target)
    moment = events.index("exchange")
    for path in (target, target / "card", target / "deep", target / "deep" / "file"):
        assert path.stat().st_ino in events[:moment]
    assert events[moment + 1] == tmp_path.stat().st_ino
    assert events.index("unlink") > moment + 1
    assert old != (target / "card").stat().st_ino


@pytest.mark.parametrize("existing", [True, False])
def test_a_name_that_cannot_be_flushed_is_taken_back(tmp_path, monkeypatch, existing):
    target = tmp_path / "set"
    if existing:
        fill(target, "old")
    fsync, parent = os.fsync, tmp_path.stat().st_ino

    def fail(handle):
        if os.fstat(handle).st_ino == parent:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteError, match="nothing was changed"):
        fill(target)
    assert names(tmp_path) == (["set"] if existing else [])
    assert not existing or content(target) == ("old", "old")


def test_a_save_within_a_save_is_flushed_once(tmp_path, monkeypatch):
    flushed = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino) or fsync(handle))
    with writing_folder(tmp_path / "outer") as outer:
        fill(outer / "inner", "old")
        fill(outer / "inner")
        with writing(outer / "file") as out:
            out.write(b"x")
        assert names(outer) == ["file", "inner"]
        flushed.clear()
    assert flushed.count((tmp_path / "outer" / "inner" / "card").stat().st_ino) == 1
    assert content(tmp_path / "outer" / "inner") == ("new", "new")


def test_long_names_do_not_clash(tmp_path):
    one, other = tmp_path / ("x" * 180 + "1"), tmp_path / ("x" * 180 + "2")
    with writing_folder(one) as folder:
        remove_abandoned(other)
        fill(other)
        assert folder.is_dir()
    assert names(tmp_path) == sorted([one.name, other.name])


def test_readers_see_one_version_during_saves(tmp_path):
    target, ended = tmp_path / "set", threading.Event()
    fill(target, "0")

    def save():
        number = 0
        while not ended.is_set():
            number += 1
            fill(target, str(number))

    thread = threading.Thread(target=save)
    thread.start()
    try:
        seen = set()
        deadline = time.monotonic() + 20
        while len(seen) < 20 and time.monotonic() < deadline:
            card, deep = read_whole(target, "card", lambda: content(target))
            assert card == deep
            seen.add(card)
    finally:
        ended.set()
        thread.join()
    assert len(seen) == 20


def test_what_is_wrong_with_one_version_is_raised(tmp_path):
    fill(tmp_path / "set")

    def read():
        raise DataError("this is wrong")

    with pytest.raises(DataError, match="this is wrong"):
        read_whole(tmp_path / "set", "card", read)


def test_an_overtaken_reader_reads_again(tmp_path):
    fill(tmp_path / "set", "0")
    calls = []

    def read():
        calls.append(None)
        if len(calls) < 3:
            fill(tmp_path / "set", str(len(calls)))
            raise DataError("the weights do not fit the recipe")
        return content(tmp_path / "set")

    assert read_whole(tmp_path / "set", "card", read) == ("2", "2")
