"""Labels can be added, renamed and removed, with any characters."""

from urllib.parse import urlencode

import pytest

EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script> & "quoted" \'text\''


@pytest.fixture(autouse=True)
def _remove_added_labels(server):
    yield
    _, listed = server.call("GET", "labels?limit=1000")
    added = [label["uid"] for label in listed["labels"] if label["frequency"] == "unseen"]
    assert server.call("DELETE", "labels", {"uids": added})[0] == 200


def add(page, text, uid=""):
    page.get_by_label("Label text").fill(text)
    page.get_by_label("Label uid").fill(uid)
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#add-status", has_text="Added").wait_for()


def test_a_new_label_appears(server, open_page, wait_for, shown, text):
    page = open_page(server, urlencode({"text": text}))
    wait_for(page, server.best(text))
    before = int(page.locator("#model").inner_text().split(", ")[1].split()[0])
    add(page, text, "mine")
    rows = wait_for(page, server.best(text))
    new = next(row for row in rows if row["uid"] == "mine")
    assert new["frequency"] == "unseen"
    row = page.locator("#list > li", has=page.locator(".uid", has_text="mine"))
    assert row.locator(".mark.new").inner_text() == "new"
    assert f"number {rows.index(new) + 1} for this text" in page.locator("#add-status").inner_text()
    assert f"{before + 1} labels" in page.locator("#model").inner_text()
    assert page.get_by_label("Label text").input_value() == ""
    # A duplicate uid: the error of the server is shown, and the input stays
    page.get_by_label("Label text").fill("another")
    page.get_by_label("Label uid").fill("mine")
    page.allowed = "status of 4"
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#add-status.error").wait_for()
    assert "mine" in page.locator("#add-status").inner_text()
    assert page.get_by_label("Label text").input_value() == "another"


def test_a_new_label_without_a_text_is_predicted(server, open_page, wait_for):
    page = open_page(server)
    page.locator("#examples button").first.wait_for()
    page.get_by_role("button", name="Add", exact=True).click()
    assert page.locator("#add-status").inner_text() == "Enter a text for the label."
    add(page, "pozopi gojaju sabexu")
    page.locator("#list .mark.new").wait_for()
    assert page.locator("#text").input_value() == "pozopi gojaju sabexu"


def test_labels_are_never_markup(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": EVIL}))
    add(page, EVIL, "<b>x</b>/?#é")
    best = server.best(EVIL)
    assert EVIL in [label["text"] for label in best]
    rows = wait_for(page, best)
    index = next(index for index, row in enumerate(rows) if row["uid"] == "<b>x</b>/?#é")
    assert rows[index]["text"] == EVIL
    page.locator(".why").nth(index).click()
    page.locator(".panel table").wait_for()
    page.get_by_role("button", name="Remove …").click()
    assert EVIL in page.locator("#remove-dialog").inner_text()
    page.get_by_role("button", name="Keep it").click()
    assert page.locator("#list img, #list script, #list b, dialog b, #add-status img").count() == 0
    assert page.title() == "megalabel playground"
    # The uid becomes part of a URL
    page.get_by_role("button", name="Rename …").click()
    page.get_by_label("New text").fill(f"{EVIL} again")
    page.get_by_role("button", name="Rename", exact=True).click()
    page.locator("#list .text", has_text="again").wait_for()


def test_rename_and_remove(server, open_page, wait_for, text):
    uid, better = "mine to change", f"{text} once more"
    server.call("POST", "labels", {"texts": [text], "uids": [uid]})
    page = open_page(server, urlencode({"text": text}))
    index = next(index for index, label in enumerate(server.best(text)) if label["uid"] == uid)
    wait_for(page, server.best(text))
    page.locator(".why").nth(index).click()
    rename = page.get_by_role("button", name="Rename …")
    rename.click()
    page.get_by_label("New text").fill(better)
    page.keyboard.press("Escape")
    assert better not in [label["text"] for label in server.best(text)]
    rename.click()
    page.get_by_label("New text").fill(better)
    page.keyboard.press("Enter")
    page.locator("#list .text", has_text=better).wait_for()
    assert rename.evaluate("button => button === document.activeElement")
    assert better in {label["text"] for label in server.best(text) if label["uid"] == uid}

    page.get_by_role("button", name="Remove …").click()
    assert page.get_by_role("button", name="Keep it").evaluate("button => button === document.activeElement")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.locator("#add-status", has_text=f"Removed “{better}”.").wait_for()
    best = server.best(text)
    assert uid not in {label["uid"] for label in best}
    wait_for(page, best)
    page.wait_for_function("() => document.activeElement.id === 'results'")
    page.get_by_role("button", name="Add it again, as a new label").click()
    page.locator("#add-status", has_text=f"Added “{better}”").wait_for()
    assert server.call("GET", "labels?find=once+more")[1]["total"] == 1
