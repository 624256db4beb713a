"""The display counts correctly, prints plain lines or draws a bar, and is silent on request."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest

from megalabel.training.display import (
    CURVE,
    Display,
    PlainDisplay,
    clock_time,
    display,
    metrics_text,
    resident_bytes,
)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_speed_excludes_evaluation_and_time_left_includes_it():
    clock = Clock()
    show = Display(total_steps=10, epochs=2, clock=clock)
    assert (show.epoch, show.seconds_left, show.facts()[-1][-3:]) == (0, None, "GiB")
    for _ in range(5):
        clock.now += 2
        show.step(loss=4.0, texts=100)
    assert (show.epoch, show.loss, show.speed, show.seconds_left) == (1, 4.0, 50.0, 10.0)
    clock.now += 5
    show.evaluated({"P@1": 1.0})
    with show.pause():
        clock.now += 5
    clock.now += 2
    show.step(loss=1.0, texts=100)
    assert (show.epoch, show.loss, show.speed) == (2, 3.5, 50.0)
    assert show.seconds_left == pytest.approx(22 / 6 * 4)


def test_a_resumed_run_counts_its_own_steps_for_the_time_left():
    clock = Clock()
    show = Display(total_steps=100, epochs=4, clock=clock)
    clock.now += 50
    show.resumed(90)
    clock.now += 3
    show.step(loss=1.0, texts=1)
    assert show.seconds_left == pytest.approx(27)
    assert show.epoch == 4


def test_the_curve_keeps_its_size_and_its_shape():
    show = Display(total_steps=5_000, epochs=1, clock=Clock())
    for step in range(5_000):
        show.step(loss=5_000 - step, texts=1)
    assert CURVE <= len(show.curve) < 2 * CURVE
    assert show.sparkline()[0] == "█"
    assert show.sparkline()[-1] == "▁"
    show.step(loss=float("nan"), texts=1)
    assert "nan" in show.facts()[0]
    assert len(Display(2, 1).sparkline()) == 0


def test_plain_lines(capsys):
    clock = Clock()
    show = PlainDisplay(40, 2, title="unidec-cpu on pydocs", clock=clock)
    show.open()
    for step in range(40):
        clock.now += 1
        show.step(loss=0.5, texts=1_000)
        if step in (19, 39):
            show.evaluated({"P@1": 41.234, "P@3": 9.0, "PSP@5": 38.1}, by="P@3", best=step == 19)
    show.note("saved")
    show.close(complete=True)
    out, lines = capsys.readouterr()
    assert out == ""
    lines = [re.sub(r"[\d.]+ GiB", "M GiB", line) for line in lines.splitlines()]
    assert lines == [
        "unidec-cpu on pydocs: 40 steps, 2 epochs",
        "epoch 1/2, step 10/40 (25%): loss 0.5000, 1,000 texts/s, M GiB, 0:30 left",
        "epoch 1/2, step 20/40 (50%): loss 0.5000, 1,000 texts/s, M GiB, 0:20 left",
        "epoch 1, step 20: validation P@1 41.23, PSP@5 38.10, P@3 9.00, best P@3 so far",
        "epoch 2/2, step 30/40 (75%): loss 0.5000, 1,000 texts/s, M GiB, 0:10 left",
        "epoch 2/2, step 40/40 (100%): loss 0.5000, 1,000 texts/s, M GiB, 0:00 left",
        "epoch 2, step 40: validation P@1 41.23, PSP@5 38.10, P@3 9.00",
        "saved",
        "40 steps in 0:40",
    ]


def test_short_epochs_have_no_lines_and_a_cut_epoch_counts(capsys):
    clock = Clock()
    show = PlainDisplay(10, 2, clock=clock, epoch_steps=9)
    show.open()
    for _ in range(10):
        clock.now += 0.1
        show.step(loss=0.5, texts=1)
    assert show.epoch == 2
    show.evaluated({"P@1": 1.0})
    assert capsys.readouterr().err.splitlines() == [
        "training: 10 steps, 2 epochs", "epoch 2, step 10: validation P@1 1.00",
    ]  # fmt: skip


def test_an_error_ends_the_plain_lines_without_a_summary(capsys, monkeypatch):
    monkeypatch.delenv("MEGALABEL_PROGRESS", raising=False)
    with pytest.raises(KeyboardInterrupt), display(total_steps=9, epochs=3) as show:
        show.resumed(3)
        show.step(loss=1.0, texts=1)
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines() == ["training: 9 steps, 3 epochs", "resuming from step 3"]


def test_plain_lines_do_not_load_rich():
    code = (
        "import sys\nfrom megalabel.training.display import display\n"
        "with display(total_steps=2, epochs=1) as show:\n    show.step(loss=1.0, texts=1)\n"
        "assert 'rich' not in sys.modules"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MEGALABEL_PROGRESS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("training: 2 steps, 1 epoch")


def test_progress_can_be_switched_off(capsys, monkeypatch):
    monkeypatch.setenv("MEGALABEL_PROGRESS", "0")
    with display(total_steps=1, epochs=1, title="t") as show, show.pause():
        show.step(loss=1.0, texts=1)
        show.evaluated({"P@1": 1.0})
        show.note("hello")
    assert capsys.readouterr() == ("", "")


def on_a_terminal(monkeypatch, width: int) -> tuple[str, list[str]]:
    """Return all that was written, and the lines that stay."""
    terminal = Terminal()
    monkeypatch.delenv("MEGALABEL_PROGRESS", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setattr(sys, "stderr", terminal)
    with display(total_steps=1_200, epochs=6, title="unidec-cpu on pydocs") as show:
        for _ in range(400):
            show.step(loss=0.5, texts=32)
        show.evaluated({"P@1": 41.2, "PSP@5": 38.1}, best=True)
        show.live.refresh()
        with show.pause():
            print("other work", file=sys.stderr)  # noqa: T201
        show.note("saved")
    written = terminal.getvalue()
    assert written.endswith("\n")
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 2  # the cursor comes back
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", written)
    return plain, [line.strip() for line in plain.replace("\r", "\n").splitlines() if line.strip()]


def test_live(monkeypatch):
    plain, lines = on_a_terminal(monkeypatch, 100)
    assert lines[0] == "unidec-cpu on pydocs"
    assert re.search(r"━+ 33% epoch 2/6 step 400/1,200", plain)
    assert re.search(r"loss 0\.5000  [\d,]+ texts/s  [\d.]+ GiB  0:\d\d left  ", plain)
    assert any(re.fullmatch(r"epoch 2  loss 0\.5000  P@1 41\.20  PSP@5 38\.10  0:\d\d  best", line) for line in lines)
    assert "other work" in lines
    assert "saved" in lines
    assert re.fullmatch(r"400 steps in 0:\d\d", lines[-1])


def test_live_on_a_narrow_terminal_stays_on_its_lines(monkeypatch):
    _, lines = on_a_terminal(monkeypatch, 40)
    assert max(map(len, lines)) <= 40
    [line] = [line for line in lines if "P@1" in line]
    assert line.endswith("…")


def test_number_formats():
    assert [clock_time(seconds) for seconds in (0, 59.6, 3_599, 90_061)] == ["0:00", "1:00", "59:59", "25:01:01"]
    assert metrics_text({"a": 1, "b": 2, "c": 3, "d": 4}) == "a 1.00, b 2.00, c 3.00"
    memory = resident_bytes()
    assert memory is None or 2**20 < memory < 2**40
