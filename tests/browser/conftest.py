"""A small fused model, real servers, and a real Chromium that has to keep a clean console and talk to no other host."""

import fcntl
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

import megalabel as ml

DATA = "synthetic:points=400,labels=60,seed=5"
SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 32, words: 1024, bigrams: 0, characters: 0}",
    "batching.batch_size=64",
    "training.epochs=2",
]
FUSED = [
    *SMALL,
    "ngrams={words: 1024, bigrams: 1024, characters: 0}",
    "fitted={near: {kind: memory, labels: self}}",
    "predict={weights: fusion, candidates: 60}",
]
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = [
    "chromium", "chromium-browser", "google-chrome-stable", "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
]  # fmt: skip
PATIENCE = 20_000  # milliseconds; the machine may be busy


def find_chromium():
    named = os.environ.get("MEGALABEL_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Server:
    """A server process, and calls of its API beside the page."""

    def __init__(self, process, address):
        self.process, self.address = process, address

    def call(self, method, path, body=None, key=None):
        """Return status and answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def best(self, text, k=10, **settings):
        """Return the labels the page has to show."""
        status, answer = self.call("POST", "predict", {"texts": [text], "k": k, "details": True, **settings})
        assert status == 200, answer
        return answer["predictions"][0]


@contextmanager
def serving(run, *options, key=None):
    """Run ``megalabel serve`` and wait for the address it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "MEGALABEL_API_KEY"}
    if key:
        environment["MEGALABEL_API_KEY"] = key
    process = subprocess.Popen(
        [sys.executable, "-m", "megalabel", "serve", str(run), "--port", "0", *options],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines = queue.SimpleQueue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    said = []
    try:
        while True:
            line = lines.get(timeout=120)
            assert line is not None, f"the server stopped: {''.join(said)}"
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield Server(process, found[0])
                return
    finally:
        process.terminate()
        process.wait(timeout=30)


def _train_once(factory, name, changes):
    """Return a run folder, trained by the first worker that comes and used by all."""
    shared = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / f"browser-{name}"
    with (shared / f"browser-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "model").exists():
            ml.train("unidec-cpu", ml.load(DATA), folder, changes=changes)
    return folder


@pytest.fixture(scope="session")
def fused_run(tmp_path_factory):
    return _train_once(tmp_path_factory, "fused", FUSED)


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory):
    return _train_once(tmp_path_factory, "plain", SMALL)


@pytest.fixture(scope="session")
def text():
    """A text of the test split."""
    return ml.load(DATA).test.texts[0]


@pytest.fixture(scope="session")
def server(chromium, fused_run):
    """A fused model; tests that change its labels change them back."""
    with serving(fused_run) as found:
        yield found


@pytest.fixture(scope="session")
def serve():
    return serving


@pytest.fixture(scope="session")
def chromium():
    """Where Chromium is; without one, all that need it are left out."""
    pytest.importorskip("playwright")
    found = find_chromium()
    if found is None:
        pytest.skip("no Chromium for the tests of the page: make browser, or set MEGALABEL_CHROMIUM")
    return found


@pytest.fixture(scope="package")
def browser(chromium):
    # Of this folder, not the session: while it lives, an event loop runs in the thread of the tests.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def open_page(browser):
    """Open a page of a server in a context of its own; at the end it must have been well-behaved.

    ``page.allowed`` is a pattern of console errors that the test provokes.
    """
    opened = []

    def open_page(server, state="", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.allowed, page.errors, page.hosts = None, [], set()
        page.on("console", lambda said: page.errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda request: page.hosts.add("/".join(request.url.split("/")[:3])))
        page.goto(f"{server.address}/{state and '#' + state}")
        opened.append((page, server.address))
        return page

    yield open_page
    for page, address in opened:
        wrong = [error for error in page.errors if not (page.allowed and re.search(page.allowed, error))]
        assert not wrong
        assert page.hosts == {address}
        page.context.close()


@pytest.fixture
def shown():
    """What the list of a page shows: dictionaries of text, uid, frequency, score as written."""

    def shown(page):
        return page.eval_on_selector_all(
            "#list > li",
            """rows => rows.map(row => ({
                 text: row.querySelector(":scope > .text").textContent,
                 uid: row.querySelector(".uid").textContent,
                 frequency: row.querySelector(".meta .mark").textContent,
                 score: row.querySelector(".number").lastChild.textContent,
               }))""",
        )

    return shown


@pytest.fixture
def wait_for(shown):
    """Wait until a page shows exactly these labels (uids), in this order."""

    def wait_for(page, labels):
        page.wait_for_function(
            """uids => {
                 const shown = [...document.querySelectorAll("#list > li .uid")].map(one => one.textContent);
                 return JSON.stringify(shown) === JSON.stringify(uids);
               }""",
            arg=[label["uid"] for label in labels],
        )
        return shown(page)

    return wait_for


@pytest.fixture(scope="session")
def page_folder():
    return Path(ml.__file__).parent / "serve" / "page"
