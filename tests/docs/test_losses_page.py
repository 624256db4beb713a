"""The table of gradients in docs/losses.md equals the gradients of the losses."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_table_is_fresh():
    command = [sys.executable, ROOT / "benchmarks" / "plot_loss_gradients.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
