"""Shared by the benchmarks: where results go and what every result says of its origin."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def origin(*packages: str) -> dict[str, Any]:
    """Return machine, versions, date and commit; a tree with changes is marked by a + behind the commit."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("numpy", "scipy", *packages)},
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
    }


def write_result(name: str, document: dict[str, Any], *packages: str, out: Path | None = None) -> Path:
    """Write results/<name>.json with its origin in front."""
    path = out or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": origin(*packages), **document}, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return path


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _commit() -> str | None:
    commit = _git("rev-parse", "--short=12", "HEAD")
    return commit + ("+" if _git("status", "--porcelain", "--", "src", "benchmarks") else "") if commit else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
