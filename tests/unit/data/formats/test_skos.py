"""SKOS vocabularies: labels, languages, hierarchy; broken and hostile files."""

import gzip
import http.server
import threading

import pytest

from megalabel.data.formats import Options
from megalabel.data.formats._label_file import read_label_file
from megalabel.errors import DataError

PREFIX = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix : <http://x.org/> .
"""
PETS = (
    PREFIX
    + """
:animal a skos:Concept ; skos:prefLabel "animals"@en, "eläimet"@fi ; skos:notation "59" ; skos:narrower :mammal .
:mammal a skos:Concept ; skos:prefLabel "mammals"@en, "nisäkkäät"@fi .
:cat a skos:Concept ; skos:prefLabel "cats"@en ; skos:altLabel "felines"@en, "house  cats"@en, "kissat"@fi ;
    skos:broader :mammal, :gone, <http://other.org/pet> .
:dog a skos:Concept ; rdfs:label "dogs"@en-GB ; skos:broader :mammal .
:bare a skos:Concept .
:plain a skos:Concept ; skos:prefLabel "without language" .
:gone a skos:Concept ; skos:prefLabel "gone"@en ; owl:deprecated true .
[] a skos:Concept ; skos:prefLabel "no URI"@en .
:scheme a skos:ConceptScheme ; skos:prefLabel "the scheme"@en .
"""
)


def read(tmp_path, content, name="pets.ttl", **options):
    """Return the labels of a file, and what was said."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = []
    return read_label_file(path, Options(say=said.append, **options)), said


def test_labels_hierarchy_and_what_is_said(tmp_path):
    labels, said = read(tmp_path, PETS, language="en")
    texts = dict(zip((uid.rpartition("/")[2] for uid in labels.uids), labels.texts, strict=True))
    assert texts == {
        "animal": "animals", "bare": "http://x.org/bare", "cat": "cats; felines; house cats", "dog": "dogs",
        "mammal": "mammals", "plain": "without language",
    }  # fmt: skip
    place = {uid.rpartition("/")[2]: label for label, uid in enumerate(labels.uids)}
    assert labels.name(place["cat"]) == "cats"
    assert labels.parents(place["cat"]) == labels.parents(place["dog"]) == (place["mammal"],)
    assert labels.parents(place["mammal"]) == (place["animal"],)
    assert labels.concept(place["animal"]).notation == "59"
    assert [line.partition(": ")[2] for line in said] == [
        "SKOS vocabulary, Turtle, 6 concepts in 'en', 3 with a broader one",
        "1 deprecated concept left out",
        "1 concept without a URI left out",
        "1 concept without any label: the URI stands in",
        "2 links to broader concepts that are not among these left out",
    ]


def test_another_language(tmp_path):
    labels, said = read(tmp_path, PETS, language="fi")
    assert "eläimet" in labels.texts
    assert "cats; kissat" in labels.texts
    assert any("2 concepts without a label in 'fi': one in another language stands in" in line for line in said)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ("label", "cats"),
        ("label+alt", "cats; felines; house cats"),
        ("label+path", "cats (animals > mammals)"),
        ("alt+path+label", "cats; felines; house cats (animals > mammals)"),
    ],
)
def test_what_the_text_of_a_label_is(tmp_path, parts, text):
    labels, _ = read(tmp_path, PETS, language="en", label_text=parts)
    assert text in labels.texts


@pytest.mark.parametrize(("parts", "what"), [("path", "give label"), ("label+alts", "alt"), ("label+label", "give")])
def test_odd_parts(tmp_path, parts, what):
    with pytest.raises(Exception, match=what):
        read(tmp_path, PETS, language="en", label_text=parts)


def test_the_language_has_to_be_one(tmp_path):
    with pytest.raises(
        DataError, match=r"labels in 3 languages: en \(3\), fi \(2\), (?i:en-gb) \(1\); say which with --lang"
    ):
        read(tmp_path, PETS)
    with pytest.raises(DataError, match="no label is in the language 'sv'; there is: en"):
        read(tmp_path, PETS, language="sv")
    labels, _ = read(tmp_path, PREFIX + ':a a skos:Concept ; skos:prefLabel "one"@de .')
    assert labels.texts == ["one"]


def test_every_syntax_gives_the_same(tmp_path):
    import rdflib

    graph = rdflib.Graph().parse(data=PETS, format="turtle")
    expected, _ = read(tmp_path, PETS, language="en")
    for name, syntax in (("p.rdf", "xml"), ("p.xml", "xml"), ("p.nt", "nt")):
        content = graph.serialize(format=syntax).encode()
        for packed in (False, True):
            file = (f"{name}.gz", gzip.compress(content)) if packed else (name, content)
            labels, _ = read(tmp_path, file[1], file[0], language="en")
            assert labels == expected
            assert labels.concepts == expected.concepts


def test_relative_uris_are_those_of_the_file(tmp_path):
    labels, _ = read(tmp_path, PREFIX + '<#a> a skos:Concept ; skos:prefLabel "one"@en .')
    assert list(labels.uids) == [f"{(tmp_path / 'pets.ttl').as_uri()}#a"]


def test_a_circle_is_opened_or_an_error(tmp_path):
    ring = "".join(
        f':{a} a skos:Concept ; skos:prefLabel "{a}"@en ; skos:broader :{b} .\n' for a, b in ("ab", "bc", "ca")
    )
    labels, said = read(tmp_path, PREFIX + ring)
    assert sum(len(labels.parents(label)) for label in range(3)) == 2
    assert "1 link to broader labels left out that close a circle: http://x.org/a < http://x.org/b" in said[-1]
    with pytest.raises(DataError, match="run in a circle"):
        read(tmp_path, PREFIX + ring, strict=True)


@pytest.mark.parametrize(
    ("name", "content", "line", "what"),
    [
        ("a.ttl", PREFIX + ":a a skos:Concept\n:b .", 6, "broken Turtle"),
        ("a.ttl", PREFIX + ":a a nothing:Concept .", 5, "broken Turtle"),
        ("a.rdf", "<rdf>\n<a>\n</rdf>", 3, "broken RDF/XML (mismatched tag)"),
        ("a.nt", "<http://a> <http://b> <http://c> .\n<http://a> nonsense .\n", 2, "broken N-Triples"),
        ("a.ttl", "", None, "the file is empty"),
        ("a.ttl", PREFIX, None, "no concept that is in use"),
        ("a.ttl", b"\xff\xfe", None, "broken Turtle"),
    ],
)
def test_broken_files_name_the_line(tmp_path, name, content, line, what):
    with pytest.raises(DataError) as error:
        read(tmp_path, content, name)
    text = str(error.value)
    assert what in text
    assert "\n" not in text
    assert text.startswith(f"{tmp_path / name}:{line}: " if line else f"{tmp_path / name}: "), text


@pytest.fixture
def listener():
    """A server on this machine that counts who asks it."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


RDF = """<?xml version="1.0"?>
{doctype}
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#"
  xmlns:owl="http://www.w3.org/2002/07/owl#" xmlns:xi="http://www.w3.org/2001/XInclude">
<owl:Ontology rdf:about="http://x.org/"><owl:imports rdf:resource="{url}/imports.rdf"/></owl:Ontology>
<skos:Concept rdf:about="http://x.org/a"><skos:prefLabel xml:lang="en">one {entity}</skos:prefLabel></skos:Concept>
</rdf:RDF>
"""


@pytest.mark.parametrize(
    ("doctype", "refused"),
    [
        ('<!DOCTYPE r [<!ENTITY e SYSTEM "{secret}">]>', True),
        ('<!DOCTYPE r [<!ENTITY e SYSTEM "{url}/entity">]>', True),
        ('<!DOCTYPE r SYSTEM "{url}/dtd" [<!ENTITY e "two">]>', False),
        ('<!DOCTYPE r [<!ENTITY % p SYSTEM "{url}/parameter"> %p; <!ENTITY e "two">]>', True),
        ('<!DOCTYPE r [<!ENTITY e "two">]>', False),
    ],
)
def test_nothing_is_fetched_and_no_external_entity_resolved(tmp_path, listener, doctype, refused):
    url, asked = listener
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    content = RDF.format(doctype=doctype.format(url=url, secret=secret.as_uri()), url=url, entity="&e;")
    if refused:
        with pytest.raises(DataError, match=r"a\.rdf:2: this file declares an external entity, '[ep]'"):
            read(tmp_path, content, "a.rdf")
    else:
        assert read(tmp_path, content, "a.rdf")[0].texts == ["one two"]
    assert asked == []


def test_turtle_imports_are_not_followed(tmp_path, listener):
    url, asked = listener
    content = PREFIX + f':o owl:imports <{url}/a.ttl> .\n:a a skos:Concept ; skos:prefLabel "one"@en .\n'
    assert read(tmp_path, content)[0].texts == ["one"]
    assert asked == []


def test_entities_that_multiply_are_refused(tmp_path):
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    doctype = f'<!DOCTYPE r [<!ENTITY e0 "ha">{levels}]>'
    with pytest.raises(DataError, match=r"a\.rdf:2: this file declares a nested or long entity, 'e1'"):
        read(tmp_path, RDF.format(doctype=doctype, url="", entity="&e9;"), "a.rdf")
