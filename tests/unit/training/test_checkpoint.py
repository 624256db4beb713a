"""Checkpoints come back exactly, survive kill -9, damage and a full disk, and are pruned with care."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from megalabel.errors import DataError, WriteError
from megalabel.training.checkpoint import (
    files,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)

STATE = {"epoch": 3, "best": None, "big": 2**127 + 1, "rate": 0.1 + 0.2, "nested": {"list": [1, "é", True]}}
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip


def tensors(step: int = 0, size: int = 10) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((size, 3), float(step)), "count": torch.tensor(step)}


def save(folder: Path, step: int, **options) -> Path:
    return save_checkpoint(folder, step, tensors(step), {"step": step}, {"order": np.arange(step)}, **options)


def test_round_trip_of_every_type_and_shape(tmp_path):
    """Odd sizes on purpose: narrow tensors must not push wide ones off their alignment."""
    made = {str(dtype): torch.arange(7).remainder(2).to(dtype) for dtype in DTYPES}
    made |= {
        "number": torch.tensor(2.5),
        "empty": torch.empty(0, 5),
        "none": torch.empty(3, 0, 2),
        "strided": torch.arange(12.0).view(3, 4).T,
        "view": torch.arange(12.0)[3:7],
        "grad": torch.nn.Parameter(torch.ones(2)),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    arrays = {
        "ids": np.arange(5, dtype=np.uint16),
        "mask": np.array([[True], [False]]),
        "zero": np.float64(3).reshape(()),
    }
    path = save_checkpoint(tmp_path / "new" / "checkpoints", 12, made, STATE, arrays, tags=["best"])
    actual = load_checkpoint(tmp_path / "new" / "checkpoints")
    assert (actual.path, actual.step, actual.tags, actual.notes) == (path, 12, ("best",), ())
    assert actual.state == STATE
    assert actual.tensors.keys() == made.keys()
    for name, tensor in made.items():
        ours = actual.tensors[name]
        assert (ours.dtype, ours.shape) == (tensor.dtype, tensor.shape)
        same = [value.detach().contiguous().view(-1).view(torch.uint8) for value in (ours, tensor)]
        assert torch.equal(*same), name
    for name, array in arrays.items():
        assert actual.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(actual.arrays[name], array)
    with safe_open(path / "tensors.safetensors", "pt") as file:
        assert set(file.keys()) == made.keys()


@settings(max_examples=20, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        hnp.arrays(st.sampled_from([np.int8, np.float64]), hnp.array_shapes(min_dims=0, min_side=0)),
        max_size=4,
    )
)
def test_any_names_and_shapes(tmp_path_factory, arrays):
    folder = tmp_path_factory.mktemp("any")
    save_checkpoint(folder, 1, {}, {}, arrays)
    actual = load_checkpoint(folder).arrays
    assert actual.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(actual[name], array)
        assert actual[name].dtype == array.dtype


def test_values_that_cannot_be_saved_are_named(tmp_path):
    for name, value in {"texts": np.array(["a"]), "order": np.array([1], dtype=">i4")}.items():
        with pytest.raises(DataError, match=f"'{name}' cannot be saved"):
            save_checkpoint(tmp_path, 1, {}, {}, {name: value})
    with pytest.raises(DataError, match="a sparse tensor"):
        save_checkpoint(tmp_path, 1, {"w": torch.eye(2).to_sparse()}, {})
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path, 1, {}, {"bad": object()})
    assert list(tmp_path.iterdir()) == []


def test_writing_to_loaded_tensors_does_not_change_the_file(tmp_path):
    save(tmp_path, 4)
    actual = load_checkpoint(tmp_path)
    actual.tensors["weight"].fill_(9)
    actual.arrays["order"][:] = 9
    assert load_checkpoint(tmp_path).tensors["weight"].eq(4).all()
    assert load_checkpoint(tmp_path).arrays["order"].tolist() == [0, 1, 2, 3]


def test_pruning_keeps_the_newest_and_the_newest_of_every_tag(tmp_path):
    for step in range(1, 8):
        save(tmp_path, step, tags=["best"] if step in (2, 4) else [])
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000007-step-7", "000006-step-6", "000004-step-4"]
    assert load_checkpoint(tmp_path).step == 7
    assert load_checkpoint(tmp_path, tag="best").step == 4
    save(tmp_path, 8, tags=["best"], keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["000008-step-8"]


def test_the_newest_checkpoint_is_the_last_one_saved(tmp_path):
    """A run resumed from an earlier step saves smaller step numbers than lie there."""
    for step in (100, 200, 50):
        save(tmp_path, step)
    assert load_checkpoint(tmp_path).step == 50
    save(tmp_path, 50, tags=["best"])
    assert load_checkpoint(tmp_path).tags == ("best",)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "tensor bit": lambda path: flip(path / "tensors.safetensors"),
    "array bit": lambda path: flip(path / "arrays.safetensors"),
    "state bit": lambda path: flip(path / "state.json"),
    "manifest bit": lambda path: flip(path / "manifest.json"),
    "manifest empty": lambda path: (path / "manifest.json").write_bytes(b""),
    "manifest list": lambda path: (path / "manifest.json").write_bytes(b"[]"),
    "cut": lambda path: os.truncate(path / "tensors.safetensors", 20),
    "gone": lambda path: (path / "state.json").unlink(),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "a file": lambda path: ([each.unlink() for each in path.iterdir()], path.rmdir(), path.touch()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path, damage):
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    DAMAGES[damage](newest)
    actual = load_checkpoint(tmp_path)
    assert actual.step == 1
    assert len(actual.notes) == 1
    assert "000002-step-2" in actual.notes[0]
    save(tmp_path, 3)
    assert load_checkpoint(tmp_path).step == 3
    assert load_checkpoint(tmp_path).notes == ()


def test_nothing_to_load_gives_one_line(tmp_path):
    with pytest.raises(DataError, match="there is no checkpoint in this folder; train from the start"):
        load_checkpoint(tmp_path / "nowhere")
    path = save(tmp_path, 1)
    with pytest.raises(DataError, match="no checkpoint tagged 'best'"):
        load_checkpoint(tmp_path, tag="best")
    flip(path / "state.json")
    with pytest.raises(DataError, match=r"no readable checkpoint: .*state\.json was changed"):
        load_checkpoint(tmp_path)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("megalabel.training.checkpoint.store.FORMAT", 2)
    save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(DataError, match="it has format 2"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("at", range(5))
def test_a_full_disk_gives_one_line_and_keeps_old_checkpoints(tmp_path, monkeypatch, at):
    save(tmp_path, 1)
    calls = iter(range(100))

    def full(handle, really=os.fsync):
        if next(calls) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really(handle)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(WriteError, match="could not save a checkpoint, no space left on device; earlier ones are kept"):
        save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["000001-step-1"]
    assert load_checkpoint(tmp_path).step == 1


def test_a_file_in_the_way_gives_one_line(tmp_path):
    (tmp_path / "checkpoints").touch()
    with pytest.raises(WriteError, match="not a directory"):
        save(tmp_path / "checkpoints", 1)


def test_leftovers_of_a_crash_are_removed_and_never_loaded(tmp_path):
    for name in (".000009-step-9.part", ".000003-step-3.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tensors.safetensors").touch()
    (tmp_path / "notes.txt").touch()
    assert list_checkpoints(tmp_path) == []
    save(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001-step-1", "notes.txt"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kill_at_any_moment_leaves_a_readable_checkpoint(tmp_path):
    """The folder is read after each of ten kills: by the last one that was reported saved, or by the next."""
    done = subprocess.run(
        [sys.executable, __file__, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == 10
    assert report["caught_writing"] >= 3  # or the test would show nothing


def crash_loop(folder: Path, kills: int = 10) -> None:
    """Save in a child process, kill it at random, check all that is offered, and go on from there."""
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    draw, step, caught = random.Random(0), 0, 0
    for _ in range(kills):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            while True:
                step += 1
                save_checkpoint(folder, step, tensors(step, 200_000), {"step": step}, tags=["best"] * (step % 3 == 0))
                os.write(writer, step.to_bytes(8, "little"))
        os.close(writer)
        os.read(reader, 8)
        time.sleep(draw.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reported = b"".join(iter(lambda end=reader: os.read(end, 1 << 16), b""))
        os.close(reader)
        said = int.from_bytes(reported[-8:], "little") if reported else step + 1
        caught += any(path.name.startswith(".") for path in folder.iterdir())
        for path in list_checkpoints(folder):
            alone = folder.with_name("alone")
            alone.mkdir()
            path.rename(alone / path.name)
            load_checkpoint(alone)
            (alone / path.name).rename(path)
            alone.rmdir()
        actual = load_checkpoint(folder)
        assert actual.notes == ()
        assert actual.step in (said, said + 1), (actual.step, said)
        assert actual.tensors["weight"].eq(actual.step).all()
        step = actual.step
    print(json.dumps({"kills": kills, "saves": step, "caught_writing": caught}))  # noqa: T201


if __name__ == "__main__":
    crash_loop(Path(sys.argv[1]) / "checkpoints")
