"""Label changes are on the disk before they are made, and are made again when the model is loaded."""

import errno
import os
import shutil
import threading

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError, WriteError
from megalabel.model import journal as module
from megalabel.model.journal import JOURNAL, Journal, read_changes
from megalabel.model.store import read_labels, read_sequence

TEXTS = ["a label nobody trained on", "one more of them", "something else entirely"]


@pytest.fixture
def folder(run, tmp_path):
    shutil.copytree(run / "model", tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def bound(folder):
    model = ml.Model.load(folder)
    journal = Journal(model, folder)
    yield model, journal
    journal.close()


def change(model):
    model.add_labels(["something else", "one more"], ["x", "y"])
    model.rename_label(model.labels.uids[3], "another text")
    model.add_labels(["a label nobody trained on"])
    model.remove_labels(["y", model.labels.uids[5]])


def labels(model):
    removed = set(model.state.removed.tolist())
    pairs = enumerate(zip(model.labels.uids, model.labels.texts, strict=True))
    return [(label, uid, text) for label, (uid, text) in pairs if label not in removed]


def same(one, other):
    assert labels(one) == labels(other)
    for heads in ("all", *one.heads):
        mine, theirs = (each.search(TEXTS, 20, heads=heads) for each in (one, other))
        assert (mine.ids == theirs.ids).all()
        np.testing.assert_array_equal(mine.scores, theirs.scores)


def test_changes_are_made_again_with_the_same_answers(bound, folder):
    model, journal = bound
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != JOURNAL}
    change(model)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != JOURNAL} == before
    assert (folder / JOURNAL).stat().st_size < 1_000  # for four changes
    assert journal.pending == 4
    same(ml.Model.load(folder), model)
    assert [(row["id"], row["uid"], row["text"]) for row in read_labels(folder)] == labels(model)


def test_folding_keeps_everything_and_empties_the_journal(bound, folder):
    model, journal = bound
    change(model)
    journal.fold()
    assert ((folder / JOURNAL).stat().st_size, journal.pending, read_sequence(folder)) == (0, 0, 4)
    assert labels(ml.Model.load(folder)) == labels(model)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model"]


def test_labels_added_after_a_fold_are_made_of_trained_ones_too(bound, folder):
    """Or what the server answered before a kill would not be what it answers afterwards."""
    model, journal = bound
    model.add_labels([TEXTS[0]], ["first"])
    journal.fold()
    model.add_labels([f"{TEXTS[0]} before"], ["second"])
    loaded = ml.Model.load(folder)
    for heads in ("all", *model.heads):
        mine, theirs = (each.search(TEXTS, 20, heads=heads).scores for each in (model, loaded))
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_changes_during_a_fold_are_kept_once(bound, folder, monkeypatch):
    model, journal = bound
    model.add_labels(["before"], ["before"])
    saving, changed = threading.Event(), threading.Event()
    flush = module.flush_tree

    def slowly(place):
        saving.set()
        assert changed.wait(30)
        flush(place)

    monkeypatch.setattr(module, "flush_tree", slowly)
    thread = threading.Thread(target=journal.fold)
    thread.start()
    assert saving.wait(30)
    model.add_labels(["meanwhile"], ["meanwhile"])
    model.remove_labels(["before"])
    changed.set()
    thread.join()
    assert journal.pending == 2
    assert [number for number, _ in read_changes(folder, read_sequence(folder))] == [2, 3]
    model.add_labels(["after"], ["after"])
    assert labels(ml.Model.load(folder)) == labels(model)
    assert [uid for _, uid, _ in labels(model)][-2:] == ["meanwhile", "after"]


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_a_torn_last_record_is_dropped(bound, folder, cut):
    model, journal = bound
    model.add_labels(["kept"], ["kept"])
    whole = (folder / JOURNAL).stat().st_size
    model.add_labels(["torn"], ["torn"])
    journal.close()
    os.truncate(folder / JOURNAL, (folder / JOURNAL).stat().st_size - cut)
    loaded = ml.Model.load(folder)
    assert loaded.labels.uids[-1] == "kept"
    again = Journal(loaded, folder)
    assert (folder / JOURNAL).stat().st_size == whole
    loaded.add_labels(["next"], ["next"])
    again.close()
    assert ml.Model.load(folder).labels.uids[-2:] == ["kept", "next"]


def test_sectors_that_were_never_written_are_a_torn_record(bound, folder):
    model, journal = bound
    model.add_labels(["kept"], ["kept"])
    model.add_labels(["long " * 300], ["torn"])
    journal.close()
    content = (folder / JOURNAL).read_bytes()
    for start in range(512, len(content), 512):
        end = min(start + 512, len(content))
        (folder / JOURNAL).write_bytes(content[:start] + b"\0" * (end - start) + content[end:])
        assert read_labels(folder)[-1]["uid"] == "kept"


def test_no_damaged_byte_loses_an_acknowledged_change(bound, folder):
    """A change is there, or one line says which one is damaged: also for the last one, which is not taken for torn."""
    model, journal = bound
    model.add_labels(["one", "two"], ["x", "y"])
    model.rename_label("x", "eins")
    model.remove_labels(["y"])
    journal.close()
    good, expected = (folder / JOURNAL).read_bytes(), read_labels(folder)
    ends = [place + 1 for place, byte in enumerate(good) if byte == ord("\n")]
    for place in range(len(good)):
        for damaged in (good[place] ^ 1, good[place] ^ 0x80, 0, ord("\n")):
            if damaged == good[place]:
                continue
            (folder / JOURNAL).write_bytes(good[:place] + bytes([damaged]) + good[place + 1 :])
            line = sum(end <= place for end in ends) + 1
            try:
                assert read_labels(folder) == expected
            except DataError as error:
                assert str(error).startswith(f"{folder / JOURNAL}:{line}: ") and "\n" not in str(error)
    for length in range(len(good)):
        (folder / JOURNAL).write_bytes(good[:length])
        assert len(read_changes(folder, 0)) == sum(end <= length for end in ends)


def test_damage_before_the_end_is_one_line(bound, folder):
    model, _ = bound
    change(model)
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(lines[0] + lines[1].replace(b"another", b"anather") + b"".join(lines[2:]))
    for read in (ml.Model.load, read_labels):
        with pytest.raises(DataError, match="label change was damaged after it was written") as caught:
            read(folder)
        assert str(caught.value).startswith(f"{folder / JOURNAL}:2: ")
        assert "\n" not in str(caught.value)
    for kept, message in ((lines[1:], "label changes 1 to 1 are missing"), ([lines[0], *lines[2:]], ":2: ")):
        (folder / JOURNAL).write_bytes(b"".join(kept))
        with pytest.raises(DataError, match=message):
            ml.Model.load(folder)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_changes_nothing_and_later_changes_work(bound, folder, monkeypatch, call):
    model, journal = bound
    model.add_labels(["before"], ["before"])

    def full(handle, *data):
        if data:
            os.pwrite(handle, data[0][:9], journal.size)  # torn
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        for work in (
            lambda: model.add_labels(["new"], ["new"]),
            lambda: model.remove_labels(["before"]),
            lambda: model.rename_label("before", "after"),
        ):
            with pytest.raises(WriteError, match="no space left on device; nothing was changed"):
                work()
        assert labels(model)[-1][1:] == ("before", "before")
    model.add_labels(["new"], ["new"])
    assert labels(ml.Model.load(folder)) == labels(model)


def test_a_fold_that_fails_keeps_the_journal(bound, folder, monkeypatch):
    model, journal = bound
    change(model)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match="no space left on device"):
            journal.fold()
    assert journal.pending == 4
    model.add_labels(["next"], ["next"])
    assert labels(ml.Model.load(folder)) == labels(model)
    journal.fold()
    assert labels(ml.Model.load(folder)) == labels(model)


def test_a_model_that_someone_replaced_is_left_alone(bound, folder):
    model, journal = bound
    model.add_labels(["lost"], ["lost"])
    ml.Model.load(folder).save(folder, overwrite=True)
    for work in (lambda: model.add_labels(["new"]), journal.fold):
        with pytest.raises(WriteError, match="another program has replaced this model"):
            work()
    assert "label changes lost" in journal.where()


def test_text_that_no_file_can_hold_is_refused(bound):
    model, _ = bound
    with pytest.raises(DataError, match="must be valid Unicode"):
        model.add_labels(["half of a pair \ud800"])
    assert len(model.labels) == 60


def test_many_or_large_changes_are_due(bound, monkeypatch):
    model, journal = bound
    assert not journal.due
    monkeypatch.setattr(module, "MANY", 1)
    model.add_labels(["one"])
    assert journal.due


def test_a_model_is_bound_to_its_own_folder(bound, folder, tmp_path):
    model, _ = bound
    old = ml.Model.load(folder)
    model.add_labels(["one"], ["one"])
    with pytest.raises(WriteError, match="this folder holds another version of the model; load it from there"):
        Journal(old, folder)
    other = Journal(old, tmp_path / "new")
    old.add_labels(["two"], ["two"])
    other.close()
    assert ml.Model.load(tmp_path / "new").labels.uids[-1] == "two"
