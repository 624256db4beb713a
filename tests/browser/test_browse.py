"""All labels are browsed and searched; the threshold of a model is the default cut."""

from urllib.parse import urlencode

import pytest


def shown(page):
    """Return uid and training texts of the labels on the page."""
    return page.eval_on_selector_all(
        "#browse-rows tr", "rows => rows.map(row => [row.querySelector('.uid').textContent, row.cells[1].textContent])"
    )


def wait_for_rows(page, labels):
    page.wait_for_function(
        """uids => JSON.stringify([...document.querySelectorAll("#browse-rows .uid")].map(uid => uid.textContent))
             === JSON.stringify(uids)""",
        arg=[label["uid"] for label in labels],
    )


def test_browse_and_search(server, open_page, wait_for):
    page = open_page(server, "view=labels")
    labels = server.call("GET", "labels?limit=1000")[1]["labels"]
    wait_for_rows(page, labels[:50])
    assert shown(page) == [[label["uid"], str(label["points"])] for label in labels[:50]]
    assert page.locator("#browse-status").inner_text() == "1 to 50 of 60 labels"
    previous, following = (page.get_by_role("button", name=name) for name in ("Previous", "Next"))
    assert previous.is_disabled()
    following.click()
    wait_for_rows(page, labels[50:])
    assert page.locator("#browse-status").inner_text() == "51 to 60 of 60 labels"
    assert following.is_disabled()
    page.get_by_role("button", name="First").click()
    wait_for_rows(page, labels[:50])
    page.get_by_role("button", name="Last").click()
    wait_for_rows(page, labels[50:])
    page.get_by_label("Order").select_option("Most training texts first")
    by_points = sorted(labels, key=lambda label: -label["points"])
    wait_for_rows(page, by_points[:50])
    page.get_by_label("Order").select_option("Fewest training texts first")
    wait_for_rows(page, sorted(labels, key=lambda label: label["points"])[:50])
    word = labels[7]["text"].split()[0]
    page.get_by_label("Search texts and uids").fill(word.upper())
    matches = server.call("GET", f"labels?find={word}&sort=fewest")[1]["labels"]
    wait_for_rows(page, matches)
    page.get_by_label("Search texts and uids").fill(labels[3]["uid"])
    page.get_by_role("button", name=f"Try its text {labels[3]['text']}", exact=True).click()
    wait_for(page, server.best(labels[3]["text"]))
    page.get_by_role("link", name="Labels", exact=True).click()
    page.get_by_label("Search texts and uids").fill("nothing has this")
    page.locator("#browse-status", has_text="No label has this").wait_for()


def test_thousands_of_labels_stay_quick(server, open_page):
    """The page holds one page of labels, whatever their number."""
    page = open_page(server)
    page.locator("#examples button").first.wait_for()
    rows = [{"id": i, "uid": f"u{i}", "text": f"label {i}", "points": 3, "frequency": "tail"} for i in range(50)]
    page.route("**/labels?sort*", lambda route: route.fulfill(json={"total": 1_300_000, "labels": rows}))
    page.get_by_role("link", name="Labels", exact=True).click()
    page.locator("#browse-status", has_text="1 to 50 of 1,300,000 labels").wait_for()
    with page.expect_request("**/labels?sort*offset=1299950*"):
        page.get_by_role("button", name="Last").click()
    assert page.locator("#browse-rows tr").count() == 50


def test_the_threshold_is_the_default_cut(server, open_page, wait_for, text):
    best = server.best(text)
    value = best[3]["score"] - 1e-7
    page = open_page(server, urlencode({"text": text}), threshold={"value": value, "goal": "micro-f1"})
    wait_for(page, best[:4])
    slider = page.get_by_role("slider", name="Cut")
    assert float(slider.input_value()) == pytest.approx(value, abs=1e-6)
    assert float(page.get_by_label("Minimum score").input_value()) == pytest.approx(value, abs=1e-4)
    assert "was chosen on validation texts for micro-f1" in page.locator("#cut-hint").inner_text()
    assert "min=" not in page.url
    page.get_by_label("Minimum score").fill("2")
    wait_for(page, [])
    assert "min=2" in page.url
    page.get_by_role("button", name="Show them all").click()
    wait_for(page, best)
    assert page.locator("#cut-value").inner_text() == "none"
    assert "min=any" in page.url
    page.reload()
    wait_for(page, best)
    page.get_by_role("button", name="Reset to").last.click()
    wait_for(page, best[:4])
    assert slider.evaluate("slider => slider === document.activeElement")
    page.get_by_label("Minimum score").fill("")
    wait_for(page, best)
    slider.press("End")
    page.wait_for_url("**/*min=1*")
    # It is for probabilities only
    page.get_by_role("button", name="Reset to").last.click()
    page.get_by_role("slider", name="Boost rare labels").press("End")
    wait_for(page, server.best(text, tail=1.0))
    assert slider.is_hidden()


def test_without_a_threshold_there_is_no_cut(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": text}))
    wait_for(page, server.best(text))
    assert page.get_by_role("slider", name="Cut").is_hidden()
    assert page.get_by_label("Minimum score").input_value() == ""
