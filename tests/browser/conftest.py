"""Real servers, and a real Chromium that must keep a clean console and contact no other host."""

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

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = [
    "chromium", "chromium-browser", "google-chrome-stable", "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
]  # fmt: skip
TIMEOUT = 20_000  # milliseconds; the machine may be busy


def find_chromium():
    path = os.environ.get("MEGALABEL_CHROMIUM")
    return path or next((path for name in NAMES if (path := shutil.which(name))), None)


def with_threshold(route, threshold):
    """Let a request of the page through, and set the threshold of the model in the answer."""
    answer = route.fetch()
    route.fulfill(response=answer, json=answer.json() | ({"threshold": threshold} if answer.ok else {}))


class Server:
    """A server process, with direct calls of its API."""

    def __init__(self, process, address):
        self.process, self.address = process, address

    def call(self, method, path, body=None, key=None):
        """Return the status and the answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def best(self, text, k=10, **settings):
        """Return the labels that the page must show."""
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
    output = []
    try:
        while True:
            line = lines.get(timeout=120)
            assert line is not None, f"the server stopped: {''.join(output)}"
            output.append(line)
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield Server(process, address[0])
                return
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def text(served_data):
    """A text of the test split."""
    return ml.load(served_data).test.texts[0]


@pytest.fixture(scope="session")
def server(chromium, fused_run):
    """A server with a fused model; tests must undo their changes of its labels."""
    with serving(fused_run) as server:
        yield server


@pytest.fixture(scope="session")
def serve():
    return serving


@pytest.fixture(scope="session")
def chromium():
    """The path of Chromium; tests that need it are skipped without it."""
    pytest.importorskip("playwright")
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium for the tests of the page: make browser, or set MEGALABEL_CHROMIUM")
    return path


@pytest.fixture(scope="package")
def browser(chromium):
    # Package scope, not session: while the browser is open, an event loop runs in the thread of the tests.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Open the page of a server in a new context; after the test, check its console and the hosts it contacted.

    ``page.allowed`` is a pattern of console errors that the test expects. The page sees a model with this
    ``threshold``, by default none, so that it shows all labels.
    """
    opened = []

    def open_page(server, state="", path="", threshold=None, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.allowed, page.errors, page.hosts = None, [], set()
        page.on(
            "console",
            lambda message: page.errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda request: page.hosts.add("/".join(request.url.split("/")[:3])))
        if not path:
            page.route("**/model", lambda route: with_threshold(route, threshold))
        page.goto(f"{server.address}/{path}{state and '#' + state}")
        opened.append((page, server.address))
        return page

    yield open_page
    for page, address in opened:
        unexpected = [error for error in page.errors if not (page.allowed and re.search(page.allowed, error))]
        assert not unexpected
        assert page.hosts == {address}
        page.context.close()


@pytest.fixture
def shown():
    """Return the labels on a page as dictionaries of text, uid, frequency and formatted score."""

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
    """Wait until a page shows exactly these labels in this order; return them as ``shown`` does."""

    def wait_for(page, labels):
        page.wait_for_function(
            """uids => {
                 const shown = [...document.querySelectorAll("#list > li .uid")].map(uid => uid.textContent);
                 return JSON.stringify(shown) === JSON.stringify(uids);
               }""",
            arg=[label["uid"] for label in labels],
        )
        return shown(page)

    return wait_for


@pytest.fixture(scope="session")
def page_folder():
    return Path(ml.__file__).parent / "serve" / "page"
