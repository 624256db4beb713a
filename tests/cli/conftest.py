import os
import subprocess
import sys

import pytest


@pytest.fixture
def run(tmp_path):
    """Run the real command in a process of its own; return (exit code, stdout, stderr)."""

    def run(*arguments, cwd=tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "megalabel", *map(str, arguments)],
            cwd=cwd,
            capture_output=True,
            text=True,
            env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
        )
        return done.returncode, done.stdout, done.stderr

    return run
