"""Normal use of the playground."""

import re
from urllib.parse import urlencode

import pytest

MINUS = "\u2212"


def percent(value):
    return "<0.1%" if 0 < value < 0.0005 else f"{100 * value:.1f}%"


def test_labels_update_while_typing(server, open_page, wait_for, text):
    page = open_page(server)
    page.locator("#text").press_sequentially(text, delay=5)
    best = server.best(text)
    rows = wait_for(page, best)
    assert [row["text"] for row in rows] == [label["text"] for label in best]
    assert [row["frequency"] for row in rows] == [label["frequency"] for label in best]
    for row, label in zip(rows, best, strict=True):
        assert abs(float(row["score"].strip("<%")) - 100 * label["score"]) <= 0.1
    widths = page.eval_on_selector_all(".bar > span", "bars => bars.map(bar => parseFloat(bar.style.width))")
    assert widths == pytest.approx([100 * label["score"] for label in best], abs=0.01)
    assert page.locator("#scale").inner_text() == "Scores are calibrated probabilities."
    page.wait_for_function("() => document.getElementById('live').textContent.startsWith('10 labels. Best: ')")
    assert best[0]["text"] in page.locator("#live").text_content()
    assert f"{server.call('GET', 'model')[1]['labels']} labels" in page.locator("#model").inner_text()


def test_ctrl_enter_predicts_at_once(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": text}))
    wait_for(page, server.best(text))
    page.clock.install()  # stop the clock: the pause after typing never ends
    page.locator("#text").fill("tahere fafaku")
    page.locator("#text").press("Control+Enter")
    wait_for(page, server.best("tahere fafaku"))


def test_heads(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": text}))
    wait_for(page, server.best(text))
    assert page.get_by_role("radio").evaluate_all("inputs => inputs.map(input => input.value)") == [
        "all", "dual", "classifier", "memory", "linear", "label_words", "query_words", "vectors",
    ]  # fmt: skip
    page.get_by_role("radio", name="memory", exact=True).check()
    best = server.best(text, heads="memory")
    rows = wait_for(page, best)
    assert [float(row["score"].replace(MINUS, "-")) for row in rows] == pytest.approx(
        [label["score"] for label in best], abs=6e-4
    )
    assert page.locator("#tail").is_disabled()
    assert "“memory” alone has no probabilities" in page.locator("#tail-hint").inner_text()
    page.get_by_role("radio", name="all").check()
    wait_for(page, server.best(text))
    assert page.locator("#tail").is_enabled()


def test_the_slider_boosts_rare_labels(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": text}))
    likely, rare = server.best(text), server.best(text, tail=1.0)
    assert [label["uid"] for label in likely] != [label["uid"] for label in rare]
    wait_for(page, likely)
    slider = page.get_by_role("slider", name="Boost rare labels")
    slider.press("End")
    wait_for(page, rare)
    assert "grows with rarity" in page.locator("#scale").inner_text()
    slider.press("ArrowLeft")
    wait_for(page, server.best(text, tail=0.95))
    assert page.locator("#tail-value").inner_text() == "0.95"
    page.get_by_role("button", name="Reset to 0.00").click()
    wait_for(page, likely)
    assert slider.evaluate("slider => slider === document.activeElement")


def test_number_of_labels_and_minimum_score(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": text}))
    best = server.best(text)
    wait_for(page, best)
    page.get_by_label("Labels to show").fill("3")
    wait_for(page, best[:3])
    page.get_by_label("Labels to show").fill("0")
    assert "from 1 to 1,000" in page.locator("#k-hint").inner_text()
    page.get_by_label("Labels to show").fill("10")
    page.get_by_label("Minimum score").fill(str(best[4]["score"] - 1e-6))
    wait_for(page, best[:5])
    page.get_by_label("Minimum score").fill("2")
    wait_for(page, [])
    assert page.locator("#summary").inner_text().startswith("No label reaches the minimum score of 2.")
    page.get_by_role("button", name="Show them all").click()
    wait_for(page, best)


def test_a_link_reproduces_the_view(server, open_page, wait_for, shown, text):
    page = open_page(server)
    page.locator("#text").fill(f"{text} & 50% #1 + ü")
    page.get_by_label("Labels to show").fill("4")
    page.get_by_role("slider", name="Boost rare labels").press("End")
    page.wait_for_url(re.compile("#.*tail=1"))
    best = server.best(f"{text} & 50% #1 + ü", k=4, tail=1.0)
    wait_for(page, best)
    other = open_page(server, page.url.split("#")[1])
    assert wait_for(other, best) == shown(page)
    assert other.locator("#text").input_value() == f"{text} & 50% #1 + ü"
    assert other.locator("#tail").input_value() == "1"
    # Another link in the same tab
    other.evaluate("location.hash = 'text=tahere&head=dual&k=nonsense&tail=7'")
    wait_for(other, server.best("tahere", heads="dual"))


def test_why(server, open_page, wait_for, text):
    page = open_page(server, urlencode({"text": text}))
    best = server.best(text)
    wait_for(page, best)
    why = page.get_by_role("button", name=f"Why {best[1]['text']}")
    assert why.get_attribute("aria-expanded") == "false"
    why.click()
    panel = page.locator(f"#{why.get_attribute('aria-controls')}")
    _, reasons = server.call("POST", "explain", {"text": text, "label": best[1]["uid"], "k": 5})
    panel.locator("table").wait_for()
    rows = panel.locator("tbody tr").all()
    assert [row.locator("th").inner_text() for row in rows] == [
        "dual", "classifier", "memory", "linear", "label_words", "query_words", "vectors", "frequency",
    ]  # fmt: skip
    adds = [float(row.locator("td").nth(1).inner_text().replace(MINUS, "-")) for row in rows]
    assert adds == pytest.approx([*(part["adds"] for part in reasons["heads"]), reasons["rest"]], abs=6e-4)
    assert sum(adds) == pytest.approx(reasons["total"], abs=5e-4 * len(adds))  # each is rounded to three digits
    content = panel.inner_text()
    assert f"number {reasons['rank']} among" in content
    assert percent(reasons["probability"]) in content
    assert reasons["frequency"] in content
    assert all(near["text"] in content for near in reasons["nearest"])
    assert all(other["text"] in content for other in reasons["related"])
    why.click()
    assert panel.is_hidden()
    # It stays open when only the settings change
    why.click()
    page.get_by_role("slider", name="Boost rare labels").press("End")
    wait_for(page, server.best(text, tail=1.0))
    assert why.get_attribute("aria-expanded") == "true"
    # The text of a related label can be predicted in turn
    panel.get_by_role("button", name=reasons["related"][0]["text"]).click()
    wait_for(page, server.best(reasons["related"][0]["text"], tail=1.0))


def test_examples(server, open_page, wait_for):
    page = open_page(server)
    examples = page.locator("#examples button")
    examples.first.wait_for()
    _, listed = server.call("GET", "labels?limit=1000")
    texts = [label["text"] for label in listed["labels"]]
    assert 3 <= examples.count() <= 6
    assert set(examples.all_inner_texts()) <= set(texts)
    chosen = examples.nth(1).inner_text()
    examples.nth(1).click()
    wait_for(page, server.best(chosen))
    assert page.locator("#empty").is_hidden()
    page.locator("#text").fill("   ")
    page.locator("#empty").wait_for()
    assert page.locator("#list > li").count() == 0


def test_an_answer_to_an_older_request_is_ignored(server, open_page, wait_for, shown, text):
    page = open_page(server)
    page.locator("#examples button").first.wait_for()
    held = []

    def hold(route):
        held.append(route) if "tahere" in route.request.post_data else route.continue_()

    page.route("**/predict", hold)
    with page.expect_event("requestfailed") as stopped:  # the page cancels the first request
        with page.expect_request("**/predict"):
            page.locator("#text").fill("tahere fafaku")
        page.locator("#text").fill(text)
    assert "tahere" in stopped.value.post_data
    rows = wait_for(page, server.best(text))
    held[0].fulfill(json={"predictions": [server.best("tahere fafaku")]})
    page.wait_for_timeout(300)
    assert shown(page) == rows
