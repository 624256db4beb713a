"""The files of the page: complete, installed with the package, short, and valid under a strict content policy."""

import re
import tomllib
from fnmatch import fnmatch
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

PAGE = files("megalabel") / "serve" / "page"
NAMES = sorted(file.name for file in PAGE.iterdir())
SCRIPTS = [name for name in NAMES if name.endswith(".js")]


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


@pytest.fixture(scope="module")
def tags():
    return Parsed((PAGE / "index.html").read_text()).tags


def test_every_file_is_installed():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["megalabel"]
    assert NAMES
    for name in NAMES:
        assert any(fnmatch(f"serve/page/{name}", pattern) for pattern in patterns), name


def test_used_files_and_files_are_the_same(tags):
    used = {"index.html"} | {
        address.removeprefix("page/")
        for _, attributes in tags
        for name in ("src", "href")
        if (address := attributes.get(name) or "").startswith("page/")
    }
    for name in SCRIPTS:
        used |= set(re.findall(r'from "\./([a-z-]+\.js)"', (PAGE / name).read_text()))
    assert used == set(NAMES)


def test_no_inline_code_and_no_other_hosts(tags):
    for tag, attributes in tags:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], tag
        assert tag != "style"
        assert tag != "script" or attributes.get("src")
    for name in NAMES:
        text = (PAGE / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, name
        assert "https://" not in text, name


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_never_set_markup(name):
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", (PAGE / name).read_text()
    )


@pytest.mark.parametrize("name", NAMES)
def test_files_can_be_read_in_one_sitting(name):
    assert len((PAGE / name).read_text().splitlines()) <= (400 if name.endswith(".html") else 250)


def test_ids_exist_and_are_unique(tags):
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name in SCRIPTS:
        for element_id in re.findall(r'byId\("([a-z-]+)"\)', (PAGE / name).read_text()):
            assert element_id in ids, f"{name}: {element_id}"
    for _, attributes in tags:
        for name in ("for", "aria-labelledby", "aria-describedby"):
            assert set((attributes.get(name) or "").split()) <= set(ids)
