"""Errors are shown, and the page recovers where it can."""

from urllib.parse import urlencode

import pytest

KEY = "a-key-of-28-ASCII-characters"


@pytest.fixture(scope="module")
def locked(chromium, serve, summed_run):
    """A read-only server with an API key, and a model that is not fused."""
    with serve(summed_run, "--read-only", key=KEY) as server:
        yield server


def fail_once(page, **answer):
    """Answer the next prediction with an error; return the list of requests of the page."""
    requests = []

    def handle(route):
        requests.append(route)
        route.fulfill(**answer) if len(requests) == 1 else route.continue_()

    page.route("**/predict", handle)
    page.allowed = "status of"
    return requests


def test_a_busy_server_is_called_again(server, open_page, wait_for, text):
    page = open_page(server)
    requests = fail_once(page, status=429, headers={"Retry-After": "1"}, json={"error": {"message": "full"}})
    page.locator("#text").fill(text)
    page.locator("#message", has_text="The server is busy. Trying again in 1 s.").wait_for()
    assert page.locator("#message").get_attribute("role") == "alert"
    wait_for(page, server.best(text))
    assert page.locator("#message").is_hidden()
    assert len(requests) == 2


def test_the_page_waits_for_a_server_that_is_down(server, open_page, wait_for, text):
    page = open_page(server)
    page.locator("#examples button").first.wait_for()
    page.allowed = "ERR_INTERNET_DISCONNECTED"
    page.context.set_offline(True)
    page.locator("#text").fill(text)
    page.locator("#message", has_text="The server is not responding. Trying again in 2 s.").wait_for()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try now").click()
    wait_for(page, server.best(text))


def test_labels_are_not_added_twice_if_the_server_goes_down(server, open_page):
    page = open_page(server)
    requests = []
    page.route("**/labels", lambda route: (requests.append(route), route.abort()))
    page.allowed = "ERR_FAILED"
    page.get_by_label("Label text").fill("a label")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#add-status.error", has_text="The server is not responding.").wait_for()
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status": 504, "json": {"error": {"message": "it took longer than 30 s"}}}, "It took longer than 30 s"),
        ({"status": 500, "body": "<h1>oh</h1>"}, "The server returned status 500."),
    ],
)
def test_other_errors_are_shown(server, open_page, wait_for, text, answer, message):
    page = open_page(server)
    fail_once(page, **answer)
    page.locator("#text").fill(text)
    page.locator("#message", has_text=message).wait_for()
    page.get_by_role("button", name="Try again").click()
    wait_for(page, server.best(text))


def test_a_text_that_is_too_long(server, open_page):
    page = open_page(server)
    page.allowed = "status of 4"
    page.locator("#text").fill("word " * 20_001)
    page.locator("#message", has_text="100,000").wait_for()


def test_the_key(locked, open_page, wait_for, text):
    page = open_page(locked, urlencode({"text": text}))
    page.allowed = "status of 401"
    dialog = page.get_by_role("dialog", name="This server needs a key")
    dialog.get_by_label("API key").fill("wrong")
    page.keyboard.press("Enter")
    dialog.get_by_text("The server rejected that key.").wait_for()
    page.get_by_role("button", name="Not now").click()
    page.locator("#message", has_text="This request needs the API key.").wait_for()
    page.get_by_role("button", name="Try again").click()
    dialog.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.locator("#list > li").first.wait_for()
    assert page.evaluate("Object.values(sessionStorage)") == [KEY]
    assert page.evaluate("localStorage.length") == 0
    assert KEY not in page.content()
    assert KEY not in page.url
    assert "$MEGALABEL_API_KEY" in page.locator("#code").text_content()
    page.reload()
    page.locator("#list > li").first.wait_for()
    assert dialog.is_hidden()


def test_not_fused_and_read_only(locked, open_page, wait_for, shown, text):
    page = open_page(locked, urlencode({"text": text, "tail": 0.5}))
    page.allowed = "status of 401"
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    body = {"texts": [text], "k": 10, "details": True}
    best = locked.call("POST", "predict", body, key=KEY)[1]["predictions"][0]
    rows = wait_for(page, best)
    assert [float(row["score"].replace("\u2212", "-")) for row in rows] == pytest.approx(
        [label["score"] for label in best], abs=6e-4
    )
    assert "added up" in page.locator("#scale").inner_text()
    slider = page.get_by_role("slider", name="Boost rare labels")
    assert slider.is_disabled()
    assert "For fused models only" in page.locator("#tail-hint").inner_text()
    assert page.get_by_role("button", name="Add", exact=True).is_disabled()
    assert "read-only" in page.locator("#add-hint").inner_text()
    page.locator(".why").first.click()
    page.locator(".panel table").wait_for()
    assert page.locator(".panel").first.get_by_role("button", name="Remove").count() == 0
    page.get_by_role("button", name="Copy as Python").click()
    assert 'os.environ["MEGALABEL_API_KEY"]' in page.locator("#code").text_content()
    assert page.locator("tfoot th").first.inner_text() == "sum"
