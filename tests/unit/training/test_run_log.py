"""The log is complete after every write, and a resumed run continues from its checkpoint."""

from __future__ import annotations

import errno
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.errors import DataError, WriteError
from megalabel.training.run_log import RunLog, read_log


def write(path, steps, resumed_step=None):
    with RunLog(path, resume=resumed_step is not None) as log:
        if resumed_step is not None:
            log.rewind(resumed_step)
        for step in steps:
            log.write(step, loss=step / 7)


def steps(path):
    return [record["step"] for record in read_log(path)]


def test_lines_are_written_at_once_as_plain_json(tmp_path):
    path = tmp_path / "runs" / "metrics.jsonl"
    with RunLog(path) as log:
        log.write(1, loss=torch.tensor(0.5), speed=np.float32(2), name="é\n", metrics={"P@1": 40.25}, bad=float("nan"))
        [line] = path.read_text(encoding="utf-8").splitlines()
        expected = {"step": 1, "loss": 0.5, "speed": 2.0, "name": "é\n", "metrics": {"P@1": 40.25}, "bad": None}
        assert json.loads(line) == expected
        assert read_log(path) == [expected]


def test_a_new_run_starts_empty(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1, 2])
    write(path, [5])
    assert steps(path) == [5]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=8).map(sorted), st.integers(-1, 51), st.integers(0, 300))
def test_resume_after_a_cut_at_any_byte(tmp_path_factory, written, resumed, cut):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    write(path, written)
    content = path.read_bytes()[:cut]
    path.write_bytes(content)
    whole = written[: content.count(b"\n")]
    assert steps(path) == whole
    write(path, [60], resumed_step=resumed)
    assert steps(path) == [*(step for step in whole if step <= resumed), 60]
    assert path.read_bytes().endswith(b"\n")


def test_resume_without_a_log_starts_one(tmp_path):
    write(tmp_path / "metrics.jsonl", [3], resumed_step=2)
    assert steps(tmp_path / "metrics.jsonl") == [3]


def test_rewind_matches_the_phase(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with RunLog(path) as log:
        for phase in ("select", "refit"):
            for step in (10, 20, 30):
                log.write(step, phase=phase)
    with RunLog(path, resume=True) as log:
        log.rewind(10, phase="refit")
        log.rewind(0, phase="not begun")
    assert [(record["phase"], record["step"]) for record in read_log(path)] == [
        ("select", 10), ("select", 20), ("select", 30), ("refit", 10),
    ]  # fmt: skip


def test_zeros_after_a_power_cut_are_ignored(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1, 2])
    with path.open("ab") as out:
        out.write(b"\0" * 40)
    assert steps(path) == [1, 2]


def test_an_invalid_line_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"loss": 2}\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics.jsonl:2: expected a JSON object with a step"):
        read_log(path)
    with pytest.raises(DataError, match="no such file"):
        read_log(tmp_path / "nothing.jsonl")


def test_a_full_disk_leaves_complete_lines(tmp_path):
    """Half a line gets through, then there is no room; later there is."""
    path = tmp_path / "metrics.jsonl"
    with RunLog(path) as log:
        log.write(1)
        stream = log._stream

        class Full:
            def __getattr__(self, name):
                return getattr(stream, name)

            def write(self, line):
                stream.write(line[:5])
                raise OSError(errno.ENOSPC, "No space left on device")

        log._stream = Full()
        with pytest.raises(WriteError, match="could not write the log, no space left on device"):
            log.write(2)
        log._stream = stream
        log.write(3)
    assert steps(path) == [1, 3]


def test_a_log_is_used_in_a_with_block(tmp_path):
    with pytest.raises(RuntimeError, match="with block"):
        RunLog(tmp_path / "metrics.jsonl").write(1)


def test_a_folder_in_the_way_gives_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(WriteError, match="is a directory"), RunLog(tmp_path / "metrics.jsonl"):
        pass
