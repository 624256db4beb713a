"""Labels added, renamed and removed from the page, whatever characters they have."""

from urllib.parse import urlencode

import pytest

EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script> & "quoted" \'text\''


@pytest.fixture(autouse=True)
def _leave_labels_as_they_were(server):
    yield
    _, listed = server.call("GET", "labels?limit=1000")
    added = [label["uid"] for label in listed["labels"] if label["frequency"] == "unseen"]
    assert server.call("DELETE", "labels", {"uids": added})[0] == 200


def add(page, text, uid=""):
    page.get_by_label("Its text").fill(text)
    page.get_by_label("Its uid").fill(uid)
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#add-status", has_text="Added").wait_for()


def test_a_new_label_appears(server, open_page, wait_for, shown, text):
    page = open_page(server, urlencode({"text": text}))
    wait_for(page, server.best(text))
    before = int(page.locator("#model").inner_text().split(", ")[1].split()[0])
    add(page, text, "mine")
    found = wait_for(page, server.best(text))
    new = next(row for row in found if row["uid"] == "mine")
    assert new["frequency"] == "unseen"
    row = page.locator("#list > li", has=page.locator(".uid", has_text="mine"))
    assert row.locator(".mark.new").inner_text() == "new"
    assert f"number {found.index(new) + 1} for this text" in page.locator("#add-status").inner_text()
    assert f"{before + 1} labels" in page.locator("#model").inner_text()
    assert page.get_by_label("Its text").input_value() == ""
    # The same uid again: the server's words are shown, and what was typed stays
    page.get_by_label("Its text").fill("another")
    page.get_by_label("Its uid").fill("mine")
    page.allowed = "status of 4"
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#add-status.wrong").wait_for()
    assert "mine" in page.locator("#add-status").inner_text()
    assert page.get_by_label("Its text").input_value() == "another"


def test_a_new_label_without_a_text_asked_is_asked_for(server, open_page, wait_for):
    page = open_page(server)
    page.locator("#examples button").first.wait_for()
    page.get_by_role("button", name="Add", exact=True).click()
    assert page.locator("#add-status").inner_text() == "Give the label a text."
    add(page, "pozopi gojaju sabexu")
    page.locator("#list .mark.new").wait_for()
    assert page.locator("#text").input_value() == "pozopi gojaju sabexu"


def test_labels_are_text_never_markup(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": EVIL}))
    add(page, EVIL, "<b>x</b>/?#é")
    best = server.best(EVIL)
    assert EVIL in [label["text"] for label in best]
    found = wait_for(page, best)
    place = next(number for number, row in enumerate(found) if row["uid"] == "<b>x</b>/?#é")
    assert found[place]["text"] == EVIL
    page.locator(".why").nth(place).click()
    page.locator(".panel table").wait_for()
    page.get_by_role("button", name="Remove …").click()
    assert EVIL in page.locator("#remove-dialog").inner_text()
    page.get_by_role("button", name="Keep it").click()
    assert page.locator("#list img, #list script, #list b, dialog b, #add-status img").count() == 0
    assert page.title() == "megalabel playground"
    # Its uid goes into an address
    page.get_by_role("button", name="Rename …").click()
    page.get_by_label("New text").fill(f"{EVIL} again")
    page.get_by_role("button", name="Rename", exact=True).click()
    page.locator("#list .text", has_text="again").wait_for()


def test_rename_and_remove(server, open_page, wait_for, text):
    uid, better = "mine to change", f"{text} once more"
    server.call("POST", "labels", {"texts": [text], "uids": [uid]})
    page = open_page(server, urlencode({"text": text}))
    place = next(number for number, label in enumerate(server.best(text)) if label["uid"] == uid)
    wait_for(page, server.best(text))
    page.locator(".why").nth(place).click()
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
    page.wait_for_function("() => document.activeElement.id === 'found'")
    page.get_by_role("button", name="Add it again, as a new label").click()
    page.locator("#add-status", has_text=f"Added “{better}”").wait_for()
    assert server.call("GET", "labels?find=once+more")[1]["total"] == 1
