"""Prediction in Ray and in Spark, the real ones, each in an environment of its own beside ours."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = [
    pytest.param("ray[data]", "tests/unit/integrations/test_ray.py", id="ray"),
    pytest.param("pyspark", "tests/unit/integrations/test_spark.py", id="spark"),
]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("package", "test"), KINDS)
def test_a_bulk_engine_predicts_as_we_do(package, test, tmp_path):
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", ROOT / "constraints.txt")
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install")
    done = subprocess.run([*pip, *quiet, package], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "RAY", "SPARK"))}
    more = {
        "PYTHONPATH": str(ROOT / "src"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYSPARK_PYTHON": str(folder / "bin" / "python"),
    }
    options = ("-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "-rs")
    done = subprocess.run(
        [folder / "bin" / "python", "-m", "pytest", *options, test],
        cwd=ROOT, env=kept | more, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout, done.stdout[-2000:]
