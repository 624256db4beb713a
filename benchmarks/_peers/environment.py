"""An environment of its own for every peer, made on first use and kept in the user's cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class NoEnvironment(RuntimeError):
    """A peer could not be installed; the message is one line."""


def home() -> Path:
    """Return the folder the environments are kept in."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "megalabel" / "peers"


def environment(name: str, packages: Sequence[str], alone: Sequence[str] = ()) -> Path:
    """Return the Python of an environment with these packages, made if it is not there.

    Packages are found by name, through the user's own pip settings. Those of ``alone`` are
    installed without what they ask for, which for some is a deep-learning library they do
    not need here.
    """
    folder = home() / name
    python, note = folder / "bin" / "python", folder / "installed.json"
    wanted = [list(packages), list(alone)]
    if python.exists() and note.is_file() and json.loads(note.read_text(encoding="utf-8")) == wanted:
        return python
    print(f"  installing {name} ({', '.join([*packages, *alone])}) into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *packages])
        if alone:
            _run([*pip, "--no-deps", *alone])
    except OSError as error:
        raise NoEnvironment(f"{name} cannot be installed: {error}") from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stderr or error.stdout or "").splitlines() if line.strip()]
        raise NoEnvironment(f"{name} cannot be installed: {lines[-1] if lines else error}") from error
    note.write_text(json.dumps(wanted) + "\n", encoding="utf-8")
    return python


def _run(command: Sequence[str]) -> None:
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(command, env=own, capture_output=True, text=True, check=True)
