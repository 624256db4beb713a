"""Lines about long work."""

import time

from megalabel import progress


def test_only_long_work_is_announced(monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    lines = []
    with progress.announced("short", lines.append):
        pass
    with progress.announced("long", lines.append):
        deadline = time.monotonic() + 20
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)
    time.sleep(0.1)
    assert lines == ["long"]


def test_work_inside_other_work_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.delenv("MEGALABEL_PROGRESS", raising=False)
    with progress.progress("outer", total=2) as outer:
        time.sleep(0.01)
        with progress.progress("inner", total=1) as inner:
            time.sleep(0.01)
            inner(1)
        outer(2)
    with progress.progress("later", total=1) as later:
        time.sleep(0.01)
        later(1)
    shown = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert list(dict.fromkeys(shown)) == ["outer", "later"]
