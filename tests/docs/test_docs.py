"""Examples of README and docs run; generated parts are fresh; links lead somewhere; the navigation has every page."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from megalabel.__main__ import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAVIGATION = ROOT / "docs" / "index.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# The guides, whose commands run too, in order with their Python; other pages with commands have a test of their own.
GUIDES = ("tag", "related", "rag", "zero-shot", "encoder", "gpu")
EXTRA = ("integrations", "tag", "related", "rag", "zero-shot", "encoder")  # many seconds: large libraries, or trainings


def blocks(page):
    """Return language, first line and text of the blocks of a page that run here."""
    text = page.read_text()
    found = [(block[1], text[: block.start()].count("\n") + 1, block[2]) for block in BLOCK.finditer(text)]
    return [each for each in found if each[0] == "python" or page.stem in GUIDES]


def marked(page):
    return pytest.param(page, marks=[pytest.mark.extra] * (page.stem in EXTRA), id=page.name)


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if blocks(page)])
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "docs"}
    for language, line, text in blocks(page):
        if language == "python":
            exec(compile("\n" * line + text, str(page), "exec"), names)
            continue
        for command in text.splitlines():
            program, *arguments = shlex.split(command, comments=True)
            assert program == "megalabel"
            assert main(arguments) == 0, command


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", NAVIGATION.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(listed))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == {*listed, "index.md"} - {
        each for each in listed if "/" in each
    }


def test_generated_parts_are_fresh():
    done = subprocess.run([sys.executable, ROOT / "docs" / "build.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
