"""``megalabel explain``: one page of reasons, or one JSON document."""

import json

import megalabel as ml

TEXT = "some words of no text in particular"


def test_a_page_and_a_document(call, trained):
    code, page, _ = call("explain", trained, "--text", TEXT)
    assert code == 0
    best = ml.Model.load(trained).predict([TEXT], 1)[0][0]
    assert page.startswith(f"{best.text}  ({best.uid})\nrank 1; ")
    assert "nearest training texts with this label" in page
    code, out, _ = call("explain", trained, "--text", TEXT, "--label", "3", "-k", "2", "--json")
    explanation = json.loads(out)
    assert (code, explanation["id"]) == (0, 3)
    assert len(explanation["nearest"]) <= 2
    assert [part["head"] for part in explanation["heads"]] == ["dual", "classifier"]


def test_an_empty_text(call, trained):
    code, out, err = call("explain", trained, "--text", " ")
    assert (code, out, err) == (2, "", "megalabel: the text is empty; name a label\n")


def test_unknown_label(call, trained):
    code, _, err = call("explain", trained, "--text", TEXT, "--label", "xyzzy")
    assert code == 2
    assert "no label has the uid, text or id 'xyzzy'" in err


def test_a_label_of_very_many_digits(call, trained):
    code, _, err = call("explain", trained, "--text", TEXT, "--label", "9" * 5000)
    assert code == 2
    assert "no label has the uid, text or id '9999" in err and len(err) < 300
