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
