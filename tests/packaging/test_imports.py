"""The shape of the package: data flows one way, starting is cheap, files stay readable."""

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import megalabel

SOURCE = Path(megalabel.__file__).parent

# A module imports only from modules to its left, or from its own package.
ORDER = [
    "_version", "errors", "settings", "compiled", "split_mix", "progress", "ranks", "types", "files", "data", "metrics",
    "graphs", "augment", "index", "losses", "encoders", "heads", "fusion", "batching", "recipes", "training", "model",
    "trainer", "report", "serve", "plan", "integrations", "cli", "__main__",
]  # fmt: skip
ANYWHERE = {"__init__", "testing"}  # the front door, contract checks


def top(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("megalabel"):
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "megalabel" else [node.module]
            )
            yield from (name.split(".")[1] for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("megalabel."))


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_left(path):
    here = top(path)
    if here in ANYWHERE:
        return
    assert here in ORDER, f"{here} has no place in the order of packages"
    for name in imported(path):
        if name == "__version__":
            continue
        assert name in ORDER[: ORDER.index(here) + 1], f"{path} imports megalabel.{name}, which lies to its right"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_can_be_read_in_one_sitting(path):
    assert len(path.read_text().splitlines()) <= 400


def best_seconds(*command, tries=5):
    """Return the fastest of a few runs: the machine may be busy."""
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def test_import_is_fast_and_light():
    empty = best_seconds(sys.executable, "-c", "pass")
    assert best_seconds(sys.executable, "-c", "import megalabel") - empty < 0.3


def test_help_is_fast():
    assert best_seconds(sys.executable, "-m", "megalabel", "--help") < 0.5


@pytest.mark.parametrize(
    "module", ["megalabel.data", "megalabel.metrics", "megalabel.data.formats.folder", "megalabel.types"]
)
def test_data_and_metrics_load_no_torch(module):
    code = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
    found = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert not {"torch", "transformers", "pandas", "pyarrow", "matplotlib"} & set(found)


def test_public_names_are_there_and_documented():
    for name in megalabel.__all__:
        thing = getattr(megalabel, name)
        assert name == "__version__" or (thing.__doc__ and thing.__doc__.strip())
    with pytest.raises(AttributeError):
        megalabel.no_such_name  # noqa: B018
