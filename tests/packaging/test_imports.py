"""Package structure: import direction, fast start, short files."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import megalabel

SOURCE = Path(megalabel.__file__).parent

# A module imports only from modules to its left, or from its own package.
ORDER = [
    "_version", "wording", "cost", "errors", "settings", "compiled", "memory", "split_mix", "progress", "ranks",
    "types", "documents", "disk", "locks", "files", "device", "data", "metrics", "graphs", "augment", "index",
    "losses", "encoders", "heads", "network", "fusion", "batching", "recipes", "training", "model", "stages",
    "trainer", "distiller", "tuning", "updater", "plan", "report", "serve", "integrations", "cli", "__main__",
]  # fmt: skip
ANYWHERE = {"__init__", "testing"}  # the front door, contract checks
INFERENCE = {"heads", "network", "fusion", "model", "serve", "integrations"}  # what serves a model, without training
LONGEST = 400  # lines of a file


def sources():
    """Yield every source file with its name in the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path


def package(name):
    return name.split("/")[0].removesuffix(".py")


def imports(path):
    """Yield the packages a file imports from, wherever in the file, with the line of each."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write out the whole name of an import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "megalabel" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("megalabel.") and name != "megalabel.__version__":
                yield name.split(".")[1], node.lineno


def test_imports_follow_the_package_order():
    packages = {package(name) for name, _ in sources()}
    assert packages - ANYWHERE == set(ORDER), "every package has a place in the order"
    offenders = [
        f"{name}:{line} imports megalabel.{imported}, which is not to its left"
        for name, path in sources()
        if package(name) not in ANYWHERE
        for imported, line in imports(path)
        if imported not in ORDER[: ORDER.index(package(name)) + 1]
    ]
    assert not offenders, "\n".join(offenders)


def test_inference_imports_no_training():
    offenders = [
        f"{name}:{line} imports megalabel.{imported}"
        for name, path in sources()
        if package(name) in INFERENCE
        for imported, line in imports(path)
        if imported == "training"
    ]
    assert not offenders, "\n".join(offenders)


def test_files_can_be_read_in_one_sitting():
    lines = {name: len(path.read_text().splitlines()) for name, path in sources()}
    offenders = [f"{name} has {count} lines" for name, count in lines.items() if count > LONGEST]
    assert not offenders, "\n".join(offenders)


def loaded_by(*modules):
    """Return the names of all modules that a new process has loaded after an import."""
    code = f"import sys, json, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    return json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def test_a_served_model_loads_no_training():
    modules = loaded_by("megalabel.model", "megalabel.serve.app")
    assert "megalabel.network.network" in modules
    assert not [name for name in modules if name.startswith("megalabel.training")]


def best_seconds(*command, tries=5):
    """Return the processor time of the fastest of a few runs: other processes may keep the machine busy."""
    times = []
    for _ in range(tries):
        before = os.times()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(times)


def test_import_is_fast_and_light():
    empty = best_seconds(sys.executable, "-c", "pass")
    assert best_seconds(sys.executable, "-c", "import megalabel") - empty < 0.3


def test_help_is_fast():
    assert best_seconds(sys.executable, "-m", "megalabel", "--help") < 0.5


def test_data_and_metrics_load_no_torch():
    modules = loaded_by("megalabel.data", "megalabel.metrics", "megalabel.data.formats.folder", "megalabel.types")
    assert not {"torch", "transformers", "pandas", "pyarrow", "matplotlib"} & set(modules)


def test_public_names_exist_and_are_documented():
    for name in megalabel.__all__:
        thing = getattr(megalabel, name)
        assert name == "__version__" or (thing.__doc__ and thing.__doc__.strip())
    with pytest.raises(AttributeError):
        megalabel.no_such_name  # noqa: B018
