from dataclasses import replace
from html.parser import HTMLParser

import pytest

from megalabel.report.page import choose_samples, make_page

VOID = {"meta"}
KNOWN = VOID | {
    "html", "head", "title", "style", "body", "header", "h1", "h2", "h3", "h4", "h5", "p", "nav", "ul", "li", "a",
    "main", "section", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "strong", "details", "summary",
    "figure", "figcaption", "svg", "g", "defs", "use", "path", "text", "desc", "span", "bdi",
    "article", "ol", "pre", "footer",
}  # fmt: skip


class Checker(HTMLParser):
    """Read a page strictly: elements are closed in order, and only those in KNOWN occur."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.attributes, self.texts = [], [], [], {}

    def handle_starttag(self, tag, attributes):
        assert tag in KNOWN, tag
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.seen.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(text)


def check(page):
    """Check that a page is well formed, refers to nothing outside and has no script; return the checker."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    ids = [value for _, name, value in checker.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for tag, name, value in checker.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcset", "action", "data", "poster", "xlink:href")
        if name == "href":
            assert value.startswith("#") and value[1:] in ids
        if name in ("aria-labelledby", "aria-describedby"):
            assert value in ids
    assert "url(" not in page and "@import" not in page
    assert "script" not in checker.seen
    page.encode()
    return checker


@pytest.mark.parametrize("count", [1, 2])
def test_a_page_is_well_formed_and_self_contained(results, count):
    actual = check(make_page(results[:count]))
    titles = actual.texts["h2"]
    assert titles[:5] == ["Metrics", "P against PSP", "Label frequency", "Learning curves", "Size and speed"]
    assert titles[5:] == ["Recipe" if count == 1 else "Recipes", "Predictions"]
    assert actual.seen.count("h1") == actual.seen.count("main") == 1
    assert actual.seen.count("figure") == actual.seen.count("figcaption") == (5 if count == 1 else 6)
    assert actual.seen.count("table") == actual.seen.count("caption")
    drawn = [name for tag, name, value in actual.attributes if tag == "svg" and (name, value) == ("role", "img")]
    assert len(drawn) == actual.seen.count("figure")  # each has a description
    scopes = [value for tag, name, value in actual.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == actual.seen.count("th")


def test_texts_are_escaped(results):
    page = make_page(results)
    actual = check(page)
    shown = " ".join(text for texts in actual.texts.values() for text in texts)
    assert "<script>alert(1)</script>" in shown  # as words
    assert "<script" not in page
    assert "</style><b>" not in page
    assert "<i>set</i>" in actual.texts["h1"][0]
    assert "<first>" in shown
    assert "\x00" not in page and "\x1b" not in page


def test_two_runs_show_what_differs(results):
    actual = check(make_page(results))
    cells = actual.texts["th"] + actual.texts["td"]
    for key in ("training.epochs", "training.refit", "heads.dual.loss.kind"):
        assert key in cells
    assert "batching.batch_size" not in cells
    assert "softmax" in cells


def test_one_run_shows_what_was_changed_in_its_recipe(results):
    actual = check(make_page(results[:1]))
    assert "batching.batch_size" in actual.texts["th"]
    assert any("unidec-cpu (default)" in cell for cell in actual.texts["th"])
    own = replace(results[0], recipe={**results[0].recipe, "name": "mine"})
    assert "batching.batch_size" not in check(make_page([own])).texts["th"]
    same = check(make_page([results[0], replace(results[0], name="again")]))
    assert "The recipes are the same." in same.texts["p"]


def test_a_saved_model_has_no_curves(results):
    bare = replace(results[0], log=[])
    assert "Learning curves" not in check(make_page([bare])).texts["h2"]
    check(make_page([bare, results[1]]))


def test_without_propensities_and_counts(results):
    """Figures of a predictions file, say: no PSP, no bins."""
    heads = {
        head: {**report, "propensity": None, "bins": [], "groups": [],
               "metrics": {name: value for name, value in report["metrics"].items() if not name.startswith("PS")}}
        for head, report in results[0].heads.items()
    }  # fmt: skip
    titles = check(make_page([replace(results[0], heads=heads)])).texts["h2"]
    assert "P against PSP" not in titles and "Label frequency" not in titles


def test_many_runs(results):
    many = [replace(results[number % 2], name=f"run {number}") for number in range(12)]
    actual = check(make_page(many))
    assert actual.seen.count("title") > 12 * 2 * 3  # tooltips of bars


def test_a_fused_run_shows_calibration_and_tail(results, fused_results):
    actual = check(make_page([fused_results]))
    assert actual.texts["h2"][1:4] == ["P against PSP", "Calibration", "Number of labels"]
    assert "P@5 against PSP@5 by tail" in actual.texts["h3"]
    assert {"Metrics by tail", "The same as a table"} <= set(actual.texts["summary"])
    assert any("without the heads that are fitted after it" in text for text in actual.texts["p"])
    assert "Calibration" in check(make_page([results[0], fused_results])).texts["h2"]


def sample(correct):
    return {"text": "t", "labels": [{"text": "a", "relevant": correct, "score": 1.0}], "missed": []}


def test_correct_and_wrong_samples(results):
    run = replace(results[0], samples=[sample(place % 3 == 0) for place in range(30)])
    correct, wrong = choose_samples([run])
    assert len(correct) == len(wrong) == 4
    assert all(place % 3 == 0 for place in correct)
    assert all(place % 3 for place in wrong)
    assert correct == sorted(correct) and correct[-1] > 15  # spread over the set


def test_samples_on_which_runs_differ_are_preferred(results):
    one = replace(results[0], samples=[sample(place < 10) for place in range(20)])
    other = replace(results[1], samples=[sample(place < 8 or place == 15) for place in range(20)])
    correct, wrong = choose_samples([one, other])
    assert {8, 9} <= set(correct) and 15 in wrong


def test_few_or_no_samples(results):
    assert choose_samples([replace(results[0], samples=[])]) == ([], [])
    none = {"text": "t", "labels": [], "missed": ["a"]}
    assert choose_samples([replace(results[0], samples=[none])]) == ([], [0])
