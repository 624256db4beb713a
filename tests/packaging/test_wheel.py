"""Wheel and sdist: what is in them, and that they work in an environment of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import megalabel

ROOT = Path(megalabel.__file__).parents[2]

if not (ROOT / "pyproject.toml").is_file():
    pytest.skip("not a checkout of the sources", allow_module_level=True)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LIGHT = ("numpy", "scipy", "numba", "orjson", "filelock", "pydantic", "pyyaml", "typer", "rich", "tokenizers")
pytestmark = pytest.mark.extra


def run(*command, folder, **variables):
    """Run a command in an empty folder, without the environment of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=kept | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder with both files, built from a copy of what git knows."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        if name.startswith("src/") or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--outdir", out, source, folder=out)
    return out


def test_files(dist):
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    assert wheel.name == f"megalabel-{megalabel.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    files = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/megalabel").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert files <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    with tarfile.open(sdist) as archive:
        inside = archive.getnames()
    assert {f"megalabel-{megalabel.__version__}/{name}" for name in ("pyproject.toml", "README.md", "LICENSE")} <= set(
        inside
    )


def environment(python, folder, *packages):
    """Return the folder of programs of a new environment with these packages."""
    run(python, "-m", "venv", folder / "env", folder=folder)
    programs = folder / "env" / "bin"
    quiet = ("--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt")
    run(programs / "python", "-m", "pip", "install", *quiet, *packages, folder=folder)
    return programs


@pytest.fixture(scope="module")
def programs(dist, tmp_path_factory):
    """The programs of a new environment with everything for the demo and the server."""
    (wheel,) = dist.glob("*.whl")
    return environment(sys.executable, tmp_path_factory.mktemp("demo"), f"{wheel}[demo,serve]")


def test_ten_commands(dist, programs, tmp_path):
    """From installation to export, on 2,000 rows; the environment is there already, which saves its downloads."""
    (wheel,) = dist.glob("*.whl")
    printed = run(
        "sh", ROOT / "examples" / "ten_commands.sh", wheel, folder=tmp_path, HF_HUB_OFFLINE="1",
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}", MEGALABEL_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert int(re.search(r"ten commands: (\d+) s after", printed)[1]) > 0
    assert "predictions" in printed and "P@1" in printed
    (line,) = (tmp_path / "run" / "updates.jsonl").read_text().splitlines()
    assert json.loads(line)["rows"]["new"] > 150
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) > 200
    script = (
        "from sentence_transformers import SentenceTransformer as Model\n"
        "model = Model('exported', device='cpu', trust_remote_code=True)\n"
        "print(model.encode_query(['inverse of a square matrix']).shape)\n"
    )
    assert run(programs / "python", "-c", script, folder=tmp_path, HF_HUB_OFFLINE="1").strip() == "(1, 384)"


def test_the_demo_from_an_empty_environment(programs, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    where = run(programs / "python", "-c", "import megalabel; print(megalabel.__file__)", folder=work)
    assert Path(where.strip()).is_relative_to(programs.parent)
    printed = run(programs / "megalabel", "demo", "--json", folder=work, HF_HUB_OFFLINE="1",
                  MEGALABEL_CACHE=str(tmp_path / "cache"))  # fmt: skip
    assert json.loads(printed)
    assert "<svg" in (work / "runs/demo/report.html").read_text()
    predicted = run(programs / "megalabel", "predict", "runs/demo", "--text", "inverse of a square matrix", "-k", "10",
                    "--json", folder=work)  # fmt: skip
    assert any("inv" in label["text"] for label in json.loads(predicted)["predictions"][0])


def pythons():
    """Return newer Pythons on this machine, by version."""
    found = {}
    for version in ("3.12", "3.13"):
        places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")]
        for place in filter(None, places):
            told = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
            if told.returncode == 0 and told.stdout.startswith(f"Python {version}."):
                found[version] = str(place)
    return found


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_data_and_metrics_on_newer_pythons(version, dist, tmp_path):
    if version not in pythons():
        pytest.skip(f"no Python {version} here")
    (wheel,) = dist.glob("*.whl")
    programs = environment(pythons()[version], tmp_path, *LIGHT)
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, folder=tmp_path)
    (tmp_path / "rows.csv").write_text("text,labels\n" + "".join(f"text {n},a{n % 3}|b{n % 5}\n" for n in range(60)))
    program = programs / "megalabel"
    run(program, "data", "convert", "rows.csv", "set", folder=tmp_path)
    script = (
        "import json, megalabel as ml\n"
        "rows = ml.load('set').test\n"
        "for uid, row in zip(rows.uids, range(len(rows))):\n"
        "    print(json.dumps({'uid': uid, 'labels': rows.targets[row].indices.tolist(), 'scores': None}))\n"
    )
    lines = [json.loads(line) for line in run(programs / "python", "-c", script, folder=tmp_path).splitlines()]
    with (tmp_path / "mine.jsonl").open("w") as out:
        for line in lines:
            out.write(json.dumps(line | {"scores": [1.0] * len(line["labels"])}) + "\n")
    told = run(program, "evaluate", "--predictions", "mine.jsonl", "--data", "set", "--json", folder=tmp_path)
    assert json.loads(told)["metrics"]["P@1"] == pytest.approx(100.0)


def test_versions_are_declared():
    declared = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if ":: Python :: 3." in line}
    assert declared == {"3.11", "3.12", "3.13"}
    cited = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {re.escape(megalabel.__version__)}$", cited, re.MULTILINE)


def test_every_extra_is_explained():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(PROJECT["optional-dependencies"])
