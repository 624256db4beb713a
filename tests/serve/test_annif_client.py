"""Annif itself as the client, in an environment of its own: its pins exclude ours.

The environment takes about two minutes to make, so it is kept in the temporary folder of the machine, by version.
"""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import megalabel as ml
from megalabel.data.dataset import Labels
from megalabel.data.save import save

ANNIF = "1.4.3"
BASE = "http://example.org/pets/"
pytestmark = pytest.mark.extra


def run(*command, folder, text=None):
    """Run a command without the environment of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=kept, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def annif():
    """The program of Annif."""
    name = f"megalabel-annif-{ANNIF}-python{sys.version_info[0]}.{sys.version_info[1]}-{os.getuid()}"
    home = Path(tempfile.gettempdir()) / name
    home.mkdir(mode=0o700, exist_ok=True)
    assert home.stat().st_uid == os.getuid(), f"{home} belongs to somebody else"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            run(sys.executable, "-m", "venv", "--clear", home / "env", folder=home)
            quiet = ("--quiet", "--disable-pip-version-check")
            run(home / "env/bin/python", "-m", "pip", "install", *quiet, f"annif=={ANNIF}", folder=home)
            (home / "complete").touch()
    return home / "env/bin/annif"


@pytest.fixture(scope="module")
def data(served_data):
    """A set with URIs as uids; texts and labels are made-up words."""
    data = ml.load(served_data)
    labels = Labels(data.labels.texts, [f"{BASE}{label}" for label in range(len(data.labels))])
    return data.replace(labels=labels)


@pytest.fixture(scope="module")
def corpus(data, tmp_path_factory):
    """A folder as users of Annif have one: short texts in TSV, and a vocabulary in SKOS."""
    folder = tmp_path_factory.mktemp("annif") / "pets"
    folder.mkdir()
    for name, split in data.splits.items():
        rows = zip(split.texts, split.targets, strict=True)
        lines = [f"{text}\t{' '.join(f'<{BASE}{label}>' for label in row.indices)}\n" for text, row in rows]
        (folder / f"{name}.tsv").write_text("".join(lines))
    concept = '<{base}{i}> a skos:Concept ; skos:prefLabel "{text}"@en ; skos:broader <{base}{up}> .\n'
    concepts = [concept.format(base=BASE, i=i, text=text, up=i // 2) for i, text in enumerate(data.labels.texts)]
    concepts[0] = f'<{BASE}0> a skos:Concept ; skos:prefLabel "{data.labels.texts[0]}"@en ; skos:notation "N0" .\n'
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    (folder / "subjects.ttl").write_text(prefix + "".join(concepts))
    return folder


@pytest.fixture(scope="module")
def trained(corpus, small):
    """A run on the corpus, by the command line."""
    changes = [part for change in small for part in ("--set", change)]
    command = ["train", "unidec-cpu", "--data", corpus, "--out", corpus.parent / "run", *changes]
    done = subprocess.run(
        [sys.executable, "-m", "megalabel", *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "corpus of Annif, TSV" in done.stderr
    assert "SKOS vocabulary, Turtle, 60 concepts in 'en', 59 with a broader one" in done.stderr
    return corpus.parent / "run"


@pytest.fixture
def project(trained, start):
    """The folder of Annif, with a project that asks a server of ours."""
    server = start(trained, "--annif")
    (trained.parent / "projects.cfg").write_text(
        "[pets-en]\nname=Pets\nlanguage=en\nbackend=http\nvocab=pets\nlimit=20\n"
        f"endpoint={server.url}/v1/projects/run/suggest\n"
    )
    return trained.parent


def assert_same_figures(annif, project, test, expected, out):
    """Let Annif evaluate the project on test rows, and compare what it finds with ours."""
    run(annif, "eval", "pets-en", test, "--metrics-file", out, folder=project)
    found = json.loads(out.read_text())
    assert found["Documents_evaluated"] == 100
    assert len(expected) == 10
    for name, value in expected.items():
        code = name.replace(" ", "_").replace("(", "").replace(")", "")
        assert value == pytest.approx(found[code], abs=2e-6), name


def test_annif_gets_suggestions_and_figures_from_the_server(annif, project, corpus, data, tmp_path):
    run(annif, "load-vocab", "pets", corpus / "subjects.ttl", "--force", folder=project)
    listed = run(annif, "list-projects", folder=project).split()
    assert listed[-6:-1] == ["pets-en", "Pets", "pets", "en", "True"]

    text = data.test.texts[0]
    found = [line.split("\t") for line in run(annif, "suggest", "pets-en", folder=project, text=text).splitlines()]
    model = ml.Model.load(project / "run")
    expected = model.predict([text], k=10)[0]
    assert [row[0] for row in found] == [f"<{label.uid}>" for label in expected]
    assert [row[1] for row in found] == [label.text for label in expected]

    ours = model.evaluate(ml.load(corpus), annif=True).annif
    assert_same_figures(annif, project, corpus / "test.tsv", ours, tmp_path / "annif.json")

    save(data, tmp_path / "out", format="annif")
    run(annif, "load-vocab", "pets", tmp_path / "out/subjects.csv", "--force", folder=project)
    assert_same_figures(annif, project, tmp_path / "out/test.jsonl", ours, tmp_path / "annif.json")
