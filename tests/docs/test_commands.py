"""Every command on every page is one the program understands, and those that need no large data run."""

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

import megalabel as ml
from megalabel.__main__ import main
from megalabel.cli import app
from megalabel.recipes.load_recipe import load_recipe

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = re.compile(r"(?:^|.* )(?:megalabel|-m megalabel|env/bin/megalabel) (?=[a-z])")
OURS = {name for name in typer.main.get_command(app).commands}
# Pages whose commands run here, but for servers, several processes and official data; others have a test of their own.
RUN = ("README", "index", "annif", "report", "scale", "systems", "training", "tuning", "reproduce")
BAG = ["encoder.source=null", "encoder.options={dim: 16, words: 256, bigrams: 0, characters: 0}"]


def commands(page):
    """Return the arguments of the commands of a page, in blocks and indented, with lines that go on joined."""
    text = re.sub(r"\\\n *", " ", page.read_text(encoding="utf-8"))
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += [line.strip() for line in re.findall(r"^ {4}\S.*$", text, re.MULTILINE)]
    found = []
    for line in lines:
        start = PROGRAM.match(line.partition(" #")[0])
        rest = shlex.split(line[start.end() :], comments=True) if start else []
        if rest and rest[0] in OURS:
            rest = [word for word in rest if word != "$resume"]
            found.append((line, rest[: rest.index("|")] if " | " in line else rest))
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_are_understood(page):
    for line, arguments in commands(page):
        command, context, rest = typer.main.get_command(app), None, list(arguments)
        while isinstance(command, click.Group) or hasattr(command, "commands"):
            context = command.make_context("megalabel", rest, parent=context)
            _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        try:
            command.make_context("megalabel", rest, parent=context)
        except Exception as error:
            raise AssertionError(f"{page.name}: {line}") from error


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    data = ml.load("synthetic:points=120,labels=12,seed=3")
    ml.save(data, "tickets")
    Path("corpus").mkdir()
    for name, count, split in (("tickets", 100, data.train), ("mine", 100, data.train), ("fresh", 10, data.test)):
        rows = zip(split.texts[:count], split.targets[:count], strict=True)
        lines = [(text, "|".join(f"tag {label}" for label in row.indices)) for text, row in rows]
        Path(f"{name}.csv").write_text("text,labels,body,tags\n" + "".join(f"{a},{b},{a},{b}\n" for a, b in lines))
    Path("corrections.csv").write_text("".join(Path("fresh.csv").read_text().splitlines(keepends=True)[:8]))
    uris = [f"<http://example.org/{label}>" for label in range(12)]
    rows = zip(data.train.texts, data.train.targets, strict=True)
    lines = [f"{text}\t{' '.join(uris[label] for label in row.indices)}\n" for text, row in rows]
    Path("corpus/train.tsv").write_text("".join(lines[:90]))
    Path("corpus/test.tsv").write_text("".join(lines[90:]))
    concept = '{} a skos:Concept ; skos:prefLabel "label {}"@en .\n'
    concepts = "".join(concept.format(uri, label) for label, uri in enumerate(uris))
    Path("subjects.ttl").write_text("@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n" + concepts)


def runs_here(arguments):
    """Say whether a command ends by itself and has its data here."""
    away = {"pydocs", "LF-AmazonTitles-131K", "/shared/titles", "runs/big"}
    return (
        arguments[0] != "serve" and ("--dry" in arguments or not away & set(arguments)) and "--resume" not in arguments
    )


def smaller(recipe):
    """Return changes that make a recipe train in a second."""
    stages = [f"stages.{stage.name}." for stage in load_recipe(recipe).stages or ()] or [""]
    return BAG + [stage + change for stage in stages for change in ("training.epochs=1", "batching.batch_size=16")]


@pytest.mark.extra
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in RUN], ids=lambda page: page.name)
def test_commands_run(page, desk):
    if page.stem == "report":  # it compares two runs
        for name in ("first", "second"):
            train = ["train", "unidec-cpu", "--data", "tickets", "--out", f"runs/{name}"]
            assert main([*train, *(part for change in smaller("unidec-cpu") for part in ("--set", change))]) == 0
    ran = 0
    for line, arguments in commands(page):
        if not runs_here(arguments):
            continue
        if arguments[0] in ("train", "tune") and arguments[1] != "tuned/best.yaml":
            arguments += [part for change in smaller(arguments[1]) for part in ("--set", change)]
        if arguments[0] == "tune":
            arguments[arguments.index("--trials") + 1] = "2"
        assert main([str(part) for part in arguments]) == 0, line
        ran += 1
    assert ran
