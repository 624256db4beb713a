"""The retrievers of other libraries and W&B, in an environment of their own beside ours, without a network."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("langchain-core", "llama-index-core", "haystack-ai", "wandb")
TESTS = (
    "tests/unit/integrations/test_langchain.py",
    "tests/unit/integrations/test_llama_index.py",
    "tests/unit/integrations/test_haystack.py",
    "tests/training/test_wandb.py",
    "tests/docs/test_stacks_page.py",
)
pytestmark = pytest.mark.extra

# Python runs this before anything else: a connection to another machine is an error.
NO_NETWORK = """
import socket

def guarded(plain):
    def connect(self, address):
        if self.family != socket.AF_UNIX and not str(address[0]).startswith(("127.", "::1", "localhost")):
            raise AssertionError(f"something tried to reach {address}")
        return plain(self, address)
    return connect

socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python that has these packages and, through a path file, all of ours; pip keeps to our versions."""
    folder = tmp_path_factory.mktemp("stacks") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", ROOT / "constraints.txt")
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install")
    done = subprocess.run([*pip, *quiet, *PACKAGES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (site / "no_network.py").write_text(NO_NETWORK)
    (site / "zz_no_network.pth").write_text("import no_network\n")
    return folder / "bin" / "python"


def test_all_of_them_work_beside_our_versions(python, tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "WANDB", "HAYSTACK"))}
    more = {"PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "-rs", *TESTS],
        cwd=ROOT, env=kept | more, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout, done.stdout[-2000:]
    assert not (tmp_path / ".haystack").exists()  # where Haystack would keep the number it reports under
