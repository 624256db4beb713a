"""The API page: every route can be tried in place."""

import json
import shutil
import subprocess

import pytest

from .test_access import CONTRAST, axe


@pytest.fixture
def docs(server, open_page):
    def docs(**options):
        page = open_page(server, path="docs", **options)
        page.locator("details").first.wait_for()
        return page

    return docs


def part(page, method, path):
    details = page.locator(f"details[id='{method}{path}']")
    details.locator("summary").click()
    return details


def test_every_route_can_be_tried(server, docs):
    page = docs()
    before = server.call("GET", "model")[1]
    page.allowed = "status of 4"  # the example uids are of no label
    statuses = {}
    for details in page.locator("main > details").all():
        details.locator("summary").click()
        details.get_by_role("button", name="Send").click()
        details.locator(".answer").wait_for()
        name = details.get_attribute("id")
        statuses[name] = int(details.locator(".status").inner_text().split()[0])
        json.loads(details.locator(".answer").inner_text()) if name != "get/metrics" else None
    uid = json.loads(page.locator("details[id='post/labels'] .answer").inner_text())["labels"][0]["uid"]
    assert server.call("DELETE", f"labels/{uid}")[0] == 200
    assert server.call("GET", "model")[1] == before
    assert statuses == {
        "post/predict": 200, "post/explain": 200, "get/labels": 200, "post/labels": 201, "delete/labels": 404,
        "delete/labels/{uid}": 404, "patch/labels/{uid}": 404, "get/model": 200, "get/health": 200, "get/metrics": 200,
    }  # fmt: skip


def test_the_command_is_that_of_the_form(server, docs, text):
    page = docs()
    details = part(page, "get", "/labels")
    details.get_by_label("find").fill("a b")
    details.get_by_label("limit").fill("1")
    assert details.locator(".command").inner_text() == f"curl -sS '{server.address}/labels?find=a+b&limit=1'"
    details = part(page, "patch", "/labels/{uid}")
    details.get_by_label("uid", exact=True).fill("it's/$&")
    command = details.locator(".command").inner_text()
    assert command.startswith(f"curl -sS -X PATCH '{server.address}/labels/it'\\''s%2F%24%26' \\")
    assert "changes the labels" in details.inner_text()
    details.get_by_label("uid", exact=True).fill("")
    details.get_by_role("button", name="Send").click()
    assert details.locator(".status").inner_text() == "Enter uid."
    details = part(page, "post", "/predict")
    body = {"texts": [f"{text} 'twice' $HOME"], "k": 2}
    details.get_by_role("textbox").fill(json.dumps(body, indent=2))
    details.get_by_role("button", name="Send").click()
    details.locator(".answer").wait_for()
    answer = json.loads(details.locator(".answer").inner_text())
    assert [label["uid"] for label in answer["predictions"][0]] == [
        label["uid"] for label in server.best(body["texts"][0], k=2)
    ]
    if shutil.which("curl"):
        command = details.locator(".command").inner_text()
        done = subprocess.run(["sh"], input=command, capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout) == answer


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.extra)])
def test_the_page_is_accessible(docs, scheme):
    page = docs(color_scheme=scheme, viewport={"width": 340, "height": 800})
    for method, path in (("post", "/predict"), ("patch", "/labels/{uid}")):
        details = part(page, method, path)
    page.allowed = "status of 404"
    details.get_by_role("button", name="Send").press("Enter")
    details.locator(".answer").wait_for()
    assert "`" not in page.locator("body").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 340
    assert [ratio for ratio in page.evaluate(CONTRAST) if ratio[0] < 4.5] == []
    assert axe(page) == ""
