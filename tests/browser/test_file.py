"""A CSV file is labelled: every own cell stays, requests stay within the limits, errors name line and column."""

import csv
import io
import json

import pytest

OWN = 'id;Title;note\r\n1;{0};"a; ""b"""\r\n2;"=2+2";-5\r\n\r\n3; ;\r\n4;"two\nlines";é'


@pytest.fixture
def choose(open_page):
    """Open the view and choose a file with this content."""

    def choose(server, content, name="rows.csv", state="", **options):
        page = open_page(server, f"view=file&{state}", **options)
        page.locator("#model", has_text="labels").wait_for()
        data = content if isinstance(content, bytes) else content.encode()
        page.set_input_files("#file-input", {"name": name, "mimeType": "text/csv", "buffer": data})
        return page

    return choose


def label(page):
    """Label the chosen file and return what is downloaded."""
    page.locator("#file-start").click()
    page.locator("#file-done").wait_for()
    with page.expect_download() as download:
        page.locator("#file-download").click()
    return download.value.path().read_bytes(), download.value.suggested_filename


def test_own_columns_stay_and_labels_are_added(server, choose, text):
    page = choose(server, "\ufeff" + OWN.format(text), "my rows.CSV", "k=3")
    page.locator("#file-form").wait_for()
    assert page.locator("#file-about").inner_text() == "4 rows, 3 columns, separated by semicolons"
    assert page.locator("#file-column").evaluate("column => column.selectedOptions[0].text") == "Title"
    assert page.locator("#file-sample").inner_text() == text
    assert page.locator("#file-empty").inner_text() == "1 row without a text: no labels there."
    content, name = label(page)
    assert name == "my rows-labelled.csv"
    assert page.locator("#file-result").inner_text() == "3 of 4 rows have labels: up to 3 each."
    result = content.decode()
    rows = OWN.format(text).replace("\r\n\r\n", "\r\n").replace("two\nlines", "two|lines").split("\r\n")
    lines = result.removeprefix("\ufeff").replace("two\nlines", "two|lines").split("\r\n")
    assert result[0] == "\ufeff"
    assert lines.pop() == ""
    assert [line.startswith(row + ";") for row, line in zip(rows, lines, strict=True)] == [True] * 5
    table = list(csv.DictReader(io.StringIO(result.removeprefix("\ufeff"), newline=""), delimiter=";"))
    for row, words in zip(table, [text, "=2+2", None, "two\nlines"], strict=True):
        best = server.best(words, k=3) if words else []
        assert row["labels"] == "|".join(label["uid"] for label in best)
        assert row["label_texts"] == "|".join(label["text"] for label in best)
        scores = [float(score) for score in row["scores"].split("|") if score]
        assert scores == pytest.approx([label["score"] for label in best], rel=1e-3)
    # A row of the preview opens its text
    page.get_by_role("button", name=text).click()
    page.locator("#list > li").first.wait_for()
    assert page.locator("#text").input_value() == text


def test_added_cells_are_no_formulas(server, choose):
    texts, uids = ["=cmd()", '@"sum"| rest'], ["=cmd-uid", "plain-uid"]
    assert server.call("POST", "labels", {"texts": texts, "uids": uids})[0] == 201
    try:
        content = "text,labels\n=cmd(),-1\n"
        page = choose(server, content, state="k=1&head=dual")
        page.locator("#file-form").wait_for()
        plain = label(page)[0].decode().splitlines()
        assert plain[0] == "text,input_labels,labels,label_texts,scores"
        assert plain[1].startswith("=cmd(),-1,'=cmd-uid,'=cmd(),")
        assert "2 cells got an apostrophe" in page.locator("#file-result").inner_text()
        page.locator("#file-guard").uncheck()
        assert label(page)[0].decode().splitlines()[1].startswith("=cmd(),-1,=cmd-uid,=cmd(),")
        # A label that holds the separator is quoted, as the readers of tables expect it
        page.set_input_files("#file-input", {"name": "a.tsv", "mimeType": "", "buffer": b'a\ttext\n1\t@"sum"| rest\n'})
        page.locator("#file-about", has_text="1 row, 2 columns, separated by tabs").wait_for()
        content, name = label(page)
        assert name == "a-labelled.tsv"
        cells = next(csv.reader([content.decode().splitlines()[1]], delimiter="\t"))
        assert cells[2:4] == ["plain-uid", '"@""sum""| rest"']
    finally:
        assert server.call("DELETE", "labels", {"uids": uids})[0] == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "rows.csv: this file is empty."),
        ("text,labels\n", "rows.csv: there are no rows below the header."),
        ("text,id\nfine,1\nno,2,3\n", "rows.csv, line 3: 3 cells, but the header has 2."),
        ('text,id\n"two\nlines",1\n"open,2\n', "rows.csv, line 4: a quote is opened and never closed;"),
        ('text,id\nfine,1\n"a"b,2\n', "rows.csv, line 3: text after a closing quote;"),
        ("text,id\nfine,1\nfür,2\n".encode("latin-1"), "rows.csv, line 3: this is not UTF-8;"),
        ("text,id\nfine,1\n".encode("utf-16"), "rows.csv: this file is UTF-16; save it as “CSV UTF-8”."),
        (f"id,text\n1,fine\n2,{'x' * 100_001}\n", "rows.csv, line 3, column “text”: 100,001 characters, but"),
    ],
    ids=["empty", "header", "cells", "open", "quote", "latin", "utf-16", "long"],
)  # fmt: skip
def test_problems_of_a_file(server, choose, content, message):
    page = choose(server, content)
    page.locator("#file-message").wait_for()
    assert page.locator("#file-message").inner_text().startswith(message)
    if "column" in message:  # another column is fine
        assert page.locator("#file-start").is_disabled()
        page.locator("#file-column").select_option("id")
        assert page.locator("#file-message").is_hidden()
        assert page.locator("#file-start").is_enabled()
    else:
        assert page.locator("#file-form").is_hidden()


def test_a_file_that_is_too_large_is_not_read(server, choose):
    page = choose(server, "text\na\n")
    page.locator("#file-form").wait_for()
    page.evaluate(
        """() => {
             const file = new File(["text\\na\\n"], "huge.csv");
             Object.defineProperty(file, "size", { value: 300 * 2 ** 20 });
             const drop = new DragEvent("drop", { dataTransfer: new DataTransfer(), bubbles: true });
             Object.defineProperty(drop, "dataTransfer", { value: { files: [file] } });
             document.getElementById("file-drop").dispatchEvent(drop);
           }"""
    )
    page.locator("#file-message", has_text="huge.csv: this file has 300 MiB, but at most 256 are accepted").wait_for()
    assert page.locator("#file-form").is_hidden()


def answer(route, sizes):
    """Answer a prediction with one label a text, without the server."""
    texts = json.loads(route.request.post_data)["texts"]
    sizes.append(len(texts))
    rows = [[{"id": 1, "uid": f"u{text}", "text": f"label {text}", "score": 0.5}] for text in texts]
    route.fulfill(json={"predictions": rows})


def test_many_rows_go_in_batches_within_the_limits(server, choose):
    rows = "".join(f"{row},{'w ' * 40}{row}\n" for row in range(1500))
    page = choose(server, f"id,text\n{rows}")
    sizes, failures = [], [(429, "busy"), (504, "slow"), (504, "slow")]

    def handle(route):
        texts = json.loads(route.request.post_data)["texts"]
        assert len(texts) <= 1000
        if len(texts) >= 64 and failures:
            status, message = failures.pop()
            route.fulfill(status=status, json={"error": {"message": message}}, headers={"Retry-After": "1"})
        else:
            answer(route, sizes)

    page.route("**/predict", handle)
    page.allowed = "status of"
    page.locator("#file-form").wait_for()
    lines = label(page)[0].decode().splitlines()
    assert len(lines) == 1501
    assert all(line.split(",")[0] == line.split(",")[3].split()[-1] for line in lines[1:])
    assert sum(sizes) == 1500
    assert max(sizes) > 64
    assert not failures


def test_cancel_and_drop(server, choose):
    page = choose(server, "text\nfirst\n")
    page.locator("#file-form").wait_for()
    held = []
    page.route("**/predict", lambda route: held.append(route))
    page.locator("#file-start").click()
    page.locator("#file-work").wait_for()
    page.wait_for_function("() => document.getElementById('file-form').hidden")
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Cancel").click()
    assert page.locator("#file-work").is_hidden()
    assert page.locator("#file-done").is_hidden()
    assert page.evaluate("document.activeElement.id") == "file-start"
    page.unroute("**/predict")
    page.evaluate(
        """() => {
             const transfer = new DataTransfer();
             transfer.items.add(new File(["title,id\\ndropped,1\\n"], "dropped.csv"));
             for (const type of ["dragover", "drop"]) {
               const event = new DragEvent(type, { dataTransfer: transfer, bubbles: true });
               document.getElementById("file-drop").dispatchEvent(event);
             }
           }"""
    )
    page.locator("#file-name", has_text="dropped.csv").wait_for()
    page.locator("#file-about", has_text="2 columns").wait_for()
    assert label(page)[1] == "dropped-labelled.csv"
