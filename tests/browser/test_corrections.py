"""Labels are accepted, rejected and added; the download is read back as training rows. The last texts are kept."""

import json
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

import megalabel as ml
from megalabel.cli import app
from megalabel.data.formats import Options

NO_STORAGE = (
    "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('off', 'SecurityError'); } });"
)
TRICKY = [
    "plain", "with; semicolon", "a|b, c;d", '"quoted"', '["list"]', " spaces ", "=cmd()", "it's", "line\nbreak", "7",
    "ünïcode 漢字 🦉", "back\\slash", "carriage\rreturn", "tab\t", "'apostrophe",
]  # fmt: skip


@pytest.fixture
def page_of(server, open_page, wait_for):
    def page_of(text, **options):
        page = open_page(server, urlencode({"text": text}), **options)
        wait_for(page, server.best(text))
        return page

    return page_of


def download(page, folder):
    """Download the corrections; return the file."""
    page.get_by_role("link", name="Corrections").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download corrections.csv").click()
    path = folder / saved.value.suggested_filename
    saved.value.save_as(path)
    return path


def pairs(split, labels):
    """Return the texts of rows with the uids of their labels."""
    return {text: {labels.uids[label] for label in split.targets[row].indices} for row, text in enumerate(split.texts)}


def test_accept_reject_add_and_download(server, page_of, text, tmp_path):
    best = server.best(text)
    page = page_of(text)
    accept = page.get_by_role("button", name=f"Accept {best[0]['text']}", exact=True)
    accept.click()
    assert accept.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name=f"Reject {best[1]['text']}", exact=True).click()
    said = page.locator("#review-said")
    assert said.inner_text() == "1 accepted, 1 rejected, 8 undecided."
    # A second press takes it back; the other button changes it
    accept.click()
    assert accept.get_attribute("aria-pressed") == "false"
    page.get_by_role("button", name=f"Accept {best[1]['text']}", exact=True).click()
    assert said.inner_text() == "1 accepted, 0 rejected, 9 undecided."
    page.get_by_role("button", name=f"Reject {best[2]['text']}", exact=True).click()
    # Another label, found by keyboard
    shown = {label["uid"] for label in best}
    _, listed = server.call("GET", "labels?limit=1000")
    other = next(label for label in listed["labels"] if label["uid"] not in shown)
    field = page.get_by_role("combobox", name="Add another label to this text")
    field.fill(other["text"])
    options = page.locator("#review-matches [role=option]:not([aria-disabled])")
    options.first.wait_for()
    assert field.get_attribute("aria-expanded") == "true"
    place = options.all_inner_texts().index(next(o for o in options.all_inner_texts() if other["uid"] in o))
    for _ in range(place + 1):
        field.press("ArrowDown")
    assert options.nth(place).get_attribute("id") == field.get_attribute("aria-activedescendant")
    field.press("Enter")
    assert page.locator("#review-others").inner_text().startswith(other["text"])
    assert said.inner_text() == "2 accepted, 1 rejected, 8 undecided."
    # It outlives the page, and belongs to this text alone
    page.reload()
    page.locator(".is-accepted").wait_for()
    assert said.inner_text() == "2 accepted, 1 rejected, 8 undecided."
    page.locator("#text").fill("tahere fafaku")
    said.get_by_text("Tick the labels that are right.").wait_for()
    first = server.best("tahere fafaku")[0]
    page.get_by_role("button", name=f"Reject {first['text']}", exact=True).click()
    path = download(page, tmp_path)
    assert path.name == "corrections.csv"
    assert path.read_text() == f'text,labels\n{text},"[""{best[1]["uid"]}"",""{other["uid"]}""]"\n'
    assert "2 texts, 1 training row. A text without" in page.locator("#corrections-said").inner_text()
    # An accepted label is taken back, a text opened, everything forgotten
    page.get_by_role("button", name=f"Take back {other['text']}").click()
    assert "Take back" in page.evaluate("document.querySelector('#corrections-list').textContent")
    page.get_by_role("button", name="Forget all").click()
    page.get_by_role("button", name="Keep them").click()
    page.get_by_role("button", name=text, exact=True).click()
    page.locator(".is-accepted").wait_for()
    page.get_by_role("button", name="Accept the undecided").click()
    assert said.inner_text() == "9 accepted, 1 rejected, 0 undecided."
    page.get_by_role("button", name="Forget", exact=True).click()
    assert said.inner_text() == "Tick the labels that are right. Together they become a training row."
    page.get_by_role("link", name="Corrections").click()
    page.get_by_role("button", name="Forget all").click()
    page.get_by_role("button", name="Forget", exact=True).click()
    page.locator("#corrections-said", has_text="None yet.").wait_for()
    assert page.evaluate("localStorage.getItem('megalabel-corrections')") is None
    assert page.get_by_role("button", name="Download corrections.csv").is_disabled()


@pytest.mark.parametrize("rows", [1, 2, len(TRICKY)])
def test_downloads_are_read_back_as_they_are(server, open_page, tmp_path, rows):
    """Whatever labels and texts contain, and however few rows there are."""
    page = open_page(server)
    page.locator("#examples button").first.wait_for()
    wanted = {
        f"{TRICKY[row].strip()} text {row}": {TRICKY[row], TRICKY[(row + 1) % len(TRICKY)]} for row in range(rows)
    }
    given = [[text, [{"uid": uid, "text": uid} for uid in sorted(uids)]] for text, uids in wanted.items()]
    page.evaluate(
        """async (rows) => {
             const { judge } = await import("/page/corrections.js");
             for (const [text, labels] of rows) judge(text, labels, "accepted");
           }""",
        given,
    )
    path = download(page, tmp_path)
    data = ml.load(str(path), options=Options(rows="test"))  # no row is held out
    assert pairs(data.test, data.labels) == wanted
    if rows == len(TRICKY):
        assert CliRunner().invoke(app, ["data", "convert", str(path), str(tmp_path / "out")]).exit_code == 0
        data = ml.load(str(tmp_path / "out"))
        assert pairs(data.train, data.labels) | pairs(data.test, data.labels) == wanted


def test_last_texts(server, page_of, open_page, wait_for, text):
    page = page_of(text)
    history = page.locator("#history")
    page.locator("#text").press("Control+Enter")
    history.wait_for()
    page.locator("#text").fill("tahere fafaku")
    page.get_by_role("button", name="Find labels").click()
    page.locator("#text").fill("tahere fafaku more")
    page.get_by_role("button", name="Find labels").click()
    page.locator("#history-count", has_text="2").wait_for()
    page.reload()
    history.wait_for()
    history.locator("summary").press("Enter")
    assert page.locator("#history-list button").all_inner_texts() == ["tahere fafaku more", text]
    page.get_by_role("button", name=text).click()
    wait_for(page, server.best(text))
    assert page.locator("#history-list button").first.inner_text() == text
    assert json.loads(page.evaluate("localStorage.getItem('megalabel-history')")) == [text, "tahere fafaku more"]
    page.get_by_role("button", name="Clear").click()
    assert history.is_hidden()
    assert page.evaluate("localStorage.getItem('megalabel-history')") is None
    assert page.evaluate("document.activeElement.id") == "text"


def test_texts_join_the_last_ones_after_a_pause(server, page_of, text):
    page = page_of(text)
    page.locator("#history").wait_for()
    assert page.locator("#history-list button").all_text_contents() == [text]


@pytest.mark.parametrize("broken", ["off", "nonsense", pytest.param("full", marks=pytest.mark.extra)])
def test_without_storage(server, page_of, open_page, text, tmp_path, broken):
    """No history and no error; corrections are kept until the page is closed."""
    page = open_page(server)
    if broken == "off":
        page.add_init_script(NO_STORAGE)
    elif broken == "full":
        page.add_init_script(
            "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"
        )
    else:
        page.evaluate(
            """() => ["corrections", "history"].forEach((n) => localStorage.setItem(`megalabel-${n}`, "[7,{"))"""
        )
    page.reload()
    page.locator("#text").fill(text)
    page.locator("#text").press("Control+Enter")
    page.locator(".verdict .accepted").first.click()
    assert page.locator("#review-said").inner_text() == "1 accepted, 0 rejected, 9 undecided."
    assert page.locator("#history").is_hidden() is (broken != "nonsense")
    path = download(page, tmp_path)
    assert server.best(text)[0]["uid"] in path.read_text()
    warned = "keeps nothing" in page.locator("#corrections-said").inner_text()
    assert warned is (broken != "nonsense")
