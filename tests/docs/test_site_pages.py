"""How pages of the repository become pages of the site."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

import megalabel as ml
from megalabel.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
pages, reference = import_module("_pages"), import_module("_reference")
sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize(
    ("link", "folder", "target"),
    [
        ("use.md", "docs", "use.md"),
        ("../CHANGELOG.md", "docs", "changelog.md"),
        ("docs/use.md", "", "use.md"),
        ("../src/megalabel/data", "docs", "source:src/megalabel/data"),
        ("LICENSE", "", "source:LICENSE"),
        ("img/architecture.svg", "docs", "img/architecture.svg"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(link, folder, target):
    assert pages.site_link(link, ROOT / folder) == target


def test_text_keeps_its_lines_and_anchors(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("# A page\n\n[log](../CHANGELOG.md#0.1) [here](#a-page) [far](https://example.org/x)\n")
    assert pages.site_text(page) == "# A page\n\n[log](changelog.md#0.1) [here](#a-page) [far](https://example.org/x)\n"


def test_lists_of_the_first_page_are_the_navigation():
    text = "# Home\n\n- [Not](use.md)\n\n## Start\n\n- [Install](install.md): how\n- [More](zero-shot.md)\n\n## Empty\n"
    expected = "```{toctree}\n:hidden:\n:caption: Start\ninstall.md\nzero-shot.md\n```"
    assert pages.navigation(text) == expected


def test_reference_has_every_public_package():
    named = {name for names in reference.modules().values() for name in names}
    assert {f"megalabel.{name}" for name in ml._PACKAGES} <= named
    assert {"megalabel", "megalabel.integrations.sklearn", "megalabel.model"} <= named
    assert not [name for name in named if "._" in name]


def test_names_of_the_package_itself_are_not_repeated():
    page = reference.api_page("data", ["megalabel.data"])
    assert ":exclude-members: Dataset, Labels, Split, load, save" in page
    assert "see [megalabel](api-megalabel.md)" in page


@pytest.mark.parametrize(
    ("name", "file"), [("BCE", "bce.py"), ("BCE.forward", None), ("streamed", "streaming/streamed.py")]
)
def test_objects_lead_to_their_source(name, file):
    found = reference.source_of("megalabel.losses", name)
    assert (found and found[0]) == (file and f"src/megalabel/losses/{file}")
    assert found is None or found[1] > 1


def test_a_module_without_its_package_is_named(monkeypatch):
    def missing(name):
        raise MissingExtraError("haystack-ai", extra="haystack", what="the retriever")

    monkeypatch.setattr(reference, "import_module", missing)
    page = reference.api_page("integrations", ["megalabel.integrations.haystack", "megalabel.integrations.other"])
    assert "## megalabel.integrations.haystack\n\nthe retriever needs the package haystack-ai" in page
    assert "automodule" not in page
