"""The documentation site: builds without a warning, links lead somewhere, and it works offline and for everyone."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["index.html", "choose.html", "results.html", "api-losses.html", "search.html"]
RESOURCES = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}

pytestmark = pytest.mark.extra  # builds the site once, half a minute


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A new site, built as ``make docs`` builds it; a warning fails it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, ROOT / "docs" / "build_site.py", "--out", folder / "site", "--work", folder]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return folder / "site"


class Page(HTMLParser):
    """The links, anchors and resources of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors, self.resources = [], set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if values.get(RESOURCES.get(tag)):
            self.resources.append(values[RESOURCES[tag]])


def violations(page):
    """Return the rules of axe-core that a page breaks, and where."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return {rule["id"]: [node["target"] for node in rule["nodes"]] for rule in found}


def test_every_link_and_anchor_leads_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 80
    broken, checked = [], 0
    for path, page in pages.items():
        for link in [*page.links, *page.resources]:
            if re.match(r"https?:|mailto:|data:|javascript:", link):
                continue
            target, anchor = (unquote(part) for part in urldefrag(link))
            file = (path.parent / target.partition("?")[0]).resolve() if target else path
            checked += 1
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken
    assert checked > 2000


def test_no_page_names_a_file_of_another_host(site):
    outside = re.compile(r"(https?:)?//")
    found = {link for path in site.rglob("*.html") for link in Page(path).resources if outside.match(link)}
    for path in site.rglob("*.css"):
        found |= {
            url for url in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", path.read_text()) if outside.match(url)
        }
    assert not found


@pytest.fixture
def visit(site, browser):
    """Open a page from its file; nothing but files may be requested."""
    contexts, requested = [], set()

    def visit(name, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requested.add(request.url))
        page.goto(f"{site.as_uri()}/{name}")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert requested
    assert {url for url in requested if not url.startswith(("file:", "data:"))} == set()


def test_search_finds_a_page_offline(visit):
    page = visit("index.html")
    page.get_by_role("textbox", name="Search").fill("propensity")
    page.keyboard.press("Enter")
    page.locator("#search-results").get_by_role("link", name="Metrics", exact=True).wait_for()


@pytest.mark.parametrize(("name", "scheme"), [*((name, "light") for name in PAGES), ("api-losses.html", "dark")])
def test_pages_are_accessible(visit, name, scheme):
    assert violations(visit(name, color_scheme=scheme)) == {}


@pytest.mark.parametrize("name", PAGES)
def test_a_narrow_screen_scrolls_down_only(visit, name):
    page = visit(name, viewport={"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
