"""Corpora of Annif in every form, the vocabularies beside them, and what is wrong in either."""

import json

import pytest

from megalabel.data.formats import Options, detect, get_format
from megalabel.data.formats.annif import read
from megalabel.data.save import save

U = "http://x.org/"
TSV = f"first text\t<{U}a> <{U}b>\nsecond text\t<{U}b>\nthird text\t<{U}c> <{U}a>\n"
VOCABULARY = f"uri,notation,label_en,label_fi\n{U}a,1,cats,kissat\n{U}b,,dogs,\n<{U}c>,,fish,kala\n{U}old,,,\n"
VOCABULARY_TSV = f"<{U}a>\tcats\t1\n<{U}b>\tdogs\n<{U}c>\tfish\n<{U}old>\t\n"
DENSE = [[1, 1, 0], [0, 1, 0], [1, 0, 1]]


def documents(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


JSONL = documents(
    {"text": "first text", "document_id": "d1", "subjects": [{"uri": f"{U}a"}, {"uri": f"{U}b", "label": "dogs"}]},
    {"text": "second text", "metadata": {"title": "t"}, "subjects": [{"label": "dogs"}]},
    {"text": "third text", "subjects": [{"uri": f"{U}c"}, {"uri": f"{U}a"}]},
)
CSV = (
    "document_id,title,text,subject_uris\n"
    f'd1,t,first text,<{U}a> {U}b\nd2,,"second text",{U}b\nd3,,third text,"{U}c  {U}a"\n'
)
FULL_TEXT = {
    "d1.txt": "first text", "d1.tsv": f"<{U}a>\tcats\n<{U}b>\tdogs\n", "d2.txt": "second text", "d2.key": "dogs\n\n",
    "d3.json": json.dumps({"text": "third text", "subjects": [{"uri": f"{U}c"}, {"label": "cats"}]}),
    "alone.txt": "no subjects", "note.json": "{}",
}  # fmt: skip


def said_by(path, **options):
    said = []
    return read(path, Options(say=said.append, **options)), said


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"train.tsv": TSV}, "TSV"),
        ({"train.tsv.gz": TSV}, "TSV"),
        ({"train.csv": CSV}, "CSV"),
        ({"train.jsonl.gz": JSONL}, "JSON lines"),
        ({f"train/{name}": content for name, content in FULL_TEXT.items()}, "full texts"),
    ],
)
@pytest.mark.parametrize("vocabulary", ["subjects.csv", "subjects.tsv"])
def test_a_folder_with_parts_and_a_vocabulary(make, files, kind, vocabulary):
    words = VOCABULARY if vocabulary.endswith("csv") else VOCABULARY_TSV
    folder = make({**files, "test.tsv": TSV, vocabulary: words})
    name = next(iter(files)).partition("/")[0]
    assert detect(folder) == ("annif", f"it holds {name}, a corpus of Annif, {kind}")
    data, said = said_by(folder, language="en")
    assert data.train.texts == ["first text", "second text", "third text"]
    assert data.train.targets.toarray().tolist() == DENSE
    assert data.test.targets.toarray().tolist() == DENSE
    assert list(data.labels.uids) == [f"{U}a", f"{U}b", f"{U}c"]
    assert list(data.labels.texts) == ["cats", "dogs", "fish"]
    assert data.labels.concept(0).notation == "1"
    assert f"{folder / name}: corpus of Annif, {kind}, 3 texts" in said
    assert any("1 subject without a label, deprecated, left out" in line for line in said)
    if kind == "full texts":
        assert any("1 text has no subject file and is left out (the first is alone.txt)" in line for line in said)
        assert list(data.train.uids) == ["d1", "d2", "d3"]


def test_another_language_of_the_vocabulary(make):
    folder = make({"train.tsv": TSV, "test.tsv": TSV, "subjects.csv": VOCABULARY})
    data, said = said_by(folder, language="fi")
    assert list(data.labels.texts) == ["kissat", "dogs", "kala"]
    assert any("1 subject without a label in 'fi': one in another language stands in" in line for line in said)


def test_one_file_and_a_vocabulary_elsewhere(make):
    rows = "".join(f"text {i}\t<{U}{'abc'[i % 3]}>\n" for i in range(40))
    folder = make({"corpus.tsv": rows, "v.csv": VOCABULARY})
    assert detect(folder / "corpus.tsv") == ("annif", "corpus of Annif, TSV")
    data, said = said_by(folder / "corpus.tsv", label_file=folder / "v.csv", language="en")
    assert (len(data.train), len(data.test)) == (36, 4)
    assert data.train.uids[0].startswith("trn-")
    assert any("4 of 40 rows are held out as test rows" in line for line in said)
    measured, _ = said_by(folder / "corpus.tsv", rows="test")
    assert (len(measured.test), measured.test.uids[:2]) == (40, ["0", "1"])


def test_without_a_vocabulary_labels_are_what_the_corpus_calls_them(make):
    data, said = said_by(make({"train.jsonl": JSONL, "test.jsonl": JSONL}))
    assert dict(zip(data.labels.uids, data.labels.texts, strict=True)) == {
        "dogs": "dogs", f"{U}a": f"{U}a", f"{U}b": "dogs", f"{U}c": f"{U}c",
    }  # fmt: skip
    assert "2 of 4 labels have no text but a URI; give a vocabulary: --label-file" in said[-2]


def test_unknown_subjects_and_lines_without_a_tab_are_counted_and_named(make):
    broken = f"{TSV}no tab here\n\nfourth text\t<{U}new> <{U}a> <{U}old>\nfifth\t<{U}new>\n"
    folder = make({"train.tsv": broken, "test.tsv": TSV, "subjects.csv": VOCABULARY})
    data, said = said_by(folder, language="en")
    assert data.train.targets.toarray().tolist() == [*DENSE, [1, 0, 0], [0, 0, 0]]
    assert f"{folder / 'train.tsv'}: 1 line has no tab and is left out (the first is line 4)" in said
    where = f"(the first: {U}new, {folder / 'train.tsv'}:6)"
    unknown = f"are not in the vocabulary {folder / 'subjects.csv'} and left out {where}"
    assert f"{folder}: 2 subjects, named 3 times, {unknown}" in said


@pytest.mark.parametrize(
    ("train", "parts"),
    [
        (f"{TSV}no tab here\n", ["train.tsv:4", "no tab"]),
        (f"{TSV}x\t<{U}new>\n", ["train.tsv:4", f"{U}new", "not in the vocabulary"]),
    ],
)
def test_strict_stops_there(refused, train, parts):
    files = {"train.tsv": train, "test.tsv": TSV, "subjects.csv": VOCABULARY}
    refused("annif", files, *parts, options=Options(strict=True, language="en"))


def test_words_behind_a_tab_are_no_labels(make):
    data, said = said_by(make({"train.tsv": f"{TSV}a text\twith a tab <{U}a>\n", "test.tsv": TSV}))
    assert len(data.labels) == 3
    assert "3 subjects, named 3 times, are no URI and left out (the first: with, " in said[2]


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"train.jsonl": JSONL + "{"}, ["train.jsonl:4", "broken JSON"]),
        ({"train.jsonl": JSONL + documents({"text": 5.5})}, ["train.jsonl:4", '"text" must be a text']),
        ({"train.jsonl": JSONL + documents({"text": "a", "subjects": ["x"]})}, ["train.jsonl:4", "a subject must be"]),
        ({"train.jsonl": JSONL + documents({"text": "a", "subjects": [{}]})}, ["train.jsonl:4", "a subject must be"]),
        ({"train.jsonl": JSONL + documents({"subjects": []})}, ["train.jsonl:4", "one is needed"]),
        ({"train.jsonl": JSONL + documents({"text": "a", "metadata": 1})}, ["train.jsonl:4", '"metadata" must be']),
        ({"train.csv": CSV + "a,b\n"}, ["train.csv:5", "2 cells, but the header has 4"]),
        ({"train.tsv": TSV, "subjects.tsv": f"<{U}a>\tcats\ndogs\t<{U}b>\n"}, ["subjects.tsv:2", "expected <URI>"]),
        (
            {"train.tsv": TSV, "subjects.tsv": f"{VOCABULARY_TSV}<{U}a>\tagain\n"},
            ["subjects.tsv:5", "duplicate", "line 1"],
        ),
        ({"train.tsv": TSV, "subjects.csv": VOCABULARY.replace("cats,kissat", ",")}, ["labels in 2 languages: en (2)"]),
        ({"train/a.txt": b"\xff\n", "train/a.key": "cats"}, ["a.txt:1", "not UTF-8"]),
        ({"train/a.txt": "a", "train/a.key": b"cats\n\xff"}, ["a.key:2", "not UTF-8"]),
        (
            {"train.tsv": "a text\t<x:a>\n", "subjects.csv": VOCABULARY.replace(",label_fi", "")},
            ["subjects.csv:2", "cells"],
        ),
    ],
)
def test_mistakes(refused, files, parts):
    refused("annif", {"test.tsv": TSV, **files}, *parts)


def test_no_text_with_a_known_subject(refused):
    refused("annif", {"train.tsv": TSV, "test.tsv": TSV, "subjects.tsv": "<x:1>\tone\n"}, "no row", "label")


@pytest.mark.parametrize(
    "content", ["text\tlabels\na\tb\n", "a text without a tab\n", "", "a\tb c\n", f"\t<{U}a>\n"], ids=range(5)
)
def test_other_tsv_files_are_not_taken_for_a_corpus(make, content):
    from megalabel.data.formats.annif import looks_like

    assert looks_like(make({"a.tsv": content}) / "a.tsv") is None


def test_names_notations_and_parents_survive(make, tmp_path):
    table = "uid,text,parent\na,animals,\nm,mammals,a\nc,cats,m|a\nd,,a\n"
    rows = "uid,text,labels\nx,one,c\ny,two,m|d\n"
    folder = make({"train.csv": rows, "test.csv": rows, "labels.csv": table})
    data = get_format("csv").read(folder, Options(label_text="label+path"))
    assert list(data.labels.texts) == ["animals", "mammals (animals)", "cats (animals > mammals)", " (animals)"]
    for name in ("annif", "folder"):
        save(data, tmp_path / name, format=name)
        kind, _ = detect(tmp_path / name)
        assert kind == name
        back = get_format(name).read(tmp_path / name, Options())
        assert list(back.labels.texts) == list(data.labels.texts)
        assert [back.labels.parents(label) for label in range(4)] == [(), (0,), (1, 0), (0,)]
        assert [back.labels.name(label) for label in range(3)] == ["animals", "mammals", "cats"]


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ("uid,text,parent\na,one,\nb,two,nobody\n", ["labels.csv:3", "'nobody', the parent of 'b', is no label"]),
        ("uid,text,parent\na,one,b\nb,two,a\n", ["labels.csv:2", "run in a circle: a < b < a"]),
        ("uid,text,parent\na,one,a\n", ["labels.csv:2", "run in a circle: a < a"]),
    ],
)
def test_a_parent_column_with_a_mistake(refused, table, parts):
    rows = "text,labels\none,a\n"
    refused("csv", {"train.csv": rows, "test.csv": rows, "labels.csv": table}, *parts)
