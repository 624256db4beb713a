"""Read SKOS vocabularies in Turtle, RDF/XML and N-Triples with rdflib.

Nothing is fetched: the file is parsed from memory, in a syntax that refers to no other document, and ``owl:imports`` is
not followed. In RDF/XML, an entity may be a short text, as for namespaces; external and nested ones are refused.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megalabel.data.formats._vocabulary import Language, Term, count_lines
from megalabel.errors import DataError, MissingExtraError
from megalabel.files import open_bytes

if TYPE_CHECKING:
    from rdflib import Graph

__all__ = ["SYNTAXES", "read_skos"]

SYNTAXES = {
    ".ttl": ("turtle", "Turtle"), ".nt": ("nt", "N-Triples"),
    ".rdf": ("xml", "RDF/XML"), ".xml": ("xml", "RDF/XML"), ".owl": ("xml", "RDF/XML"),
}  # fmt: skip
_LINES = 20_000  # of N-Triples parsed at once
_ENTITY = 1_000  # characters of an entity


def read_skos(path: Path, language: str | None, say: Callable[[str], None]) -> list[Term]:
    """Return the concepts of a vocabulary, by uid, without deprecated ones.

    The name of a concept is its preferred label (``skos:prefLabel``, else ``rdfs:label``) in the language, else one
    without a language, else the first by language. Broader concepts that are no concepts of the file, or deprecated,
    are left out and counted.
    """
    syntax, title = SYNTAXES[_suffix(path)]
    graph = _parse(path, syntax)
    concepts, deprecated, unnamed = _concepts(graph)
    if not concepts:
        remedy = "give a vocabulary whose labels have the type skos:Concept"
        raise DataError(f"this {title} file has no concept that is in use", path=path, remedy=remedy)
    names = {uri: _names(graph, uri) for uri in concepts}
    counts = Counter(tag for pairs in names.values() for tag in {tag for tag, _ in pairs})
    chosen = Language.choose(language, counts, path)
    broader, outside = _broader(graph, concepts)
    terms, other, nameless = [], 0, 0
    for uri in concepts:
        best = min(names[uri], key=lambda pair: (chosen.rank(pair[0]), *pair), default=None)
        other += best is not None and chosen.rank(best[0]) == 3
        nameless += best is None
        alts = [text for tag, text in sorted(_alts(graph, uri)) if chosen.rank(tag) < 3]
        name = str(uri) if best is None else best[1]
        terms.append(Term(str(uri), name, None, alts, _notation(graph, uri), broader[uri]))
    said = f" in {chosen.code!r}" if chosen.code else ""
    say(f"{path}: SKOS vocabulary, {title}, {len(terms):,} concepts{said}, {sum(map(bool, broader.values())):,} "
        "with a broader one")  # fmt: skip
    found = {
        "{} deprecated concept{s} left out": deprecated,
        "{} concept{s} without a URI left out": unnamed,
        f"{{}} concept{{s}} without a label in {chosen.code!r}: one in another language stands in": other,
        "{} concept{s} without any label: the URI stands in": nameless,
        "{} link{s} to broader concepts that are not among these left out": outside,
    }
    count_lines(say, path, found)
    return terms


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _parse(path: Path, syntax: str) -> Graph:
    try:
        from rdflib import Graph
    except ImportError as error:
        raise MissingExtraError("rdflib", extra="skos", what="a SKOS vocabulary") from error
    with open_bytes(path) as stream:
        content = stream.read()
    if not content.strip():
        raise DataError("the file is empty", path=path)
    graph = Graph(bind_namespaces="none")
    with _quiet():
        if syntax == "xml":
            _check_entities(content, path)
        if syntax != "nt":
            _parse_part(graph, content, syntax, path)
            return graph
        lines = content.splitlines(keepends=True)
        for start in range(0, len(lines), _LINES):
            part = lines[start : start + _LINES]
            try:
                _parse_part(graph, b"".join(part), syntax, path)
            except DataError:
                for number, line in enumerate(part, start=start + 1):
                    _parse_part(graph, line, syntax, path, number)
                raise
    return graph


def _parse_part(graph: Graph, content: bytes, syntax: str, path: Path, line: int | None = None) -> None:
    try:
        graph.parse(data=content, format=syntax, publicID=path.resolve().as_uri())  # the base of relative URIs
    except Exception as error:  # the parsers raise many kinds; whatever it is, the file is at fault
        line = _line(error) if line is None else line
        why = " ".join(_reason(error).split())
        title = next(title for name, title in SYNTAXES.values() if name == syntax)
        raise DataError(f"broken {title} ({why:.160})", path=path, line=line) from error


class _DeclaredError(Exception):
    """The declarations of an XML file are read."""


def _check_entities(content: bytes, path: Path) -> None:
    """Raise a DataError for an entity that refers to something else, or is long; errors of syntax are found later."""
    from xml.parsers import expat

    parser = expat.ParserCreate()

    def declared(name: str, _: int, value: str | None, __: str | None, system: str | None, *___: Any) -> None:
        if value is None or "&" in value or "%" in value or len(value) > _ENTITY:
            kind = "an external" if system is not None else "a nested or long"
            raise DataError(
                f"this file declares {kind} entity, {name!r:.60}", path=path, line=parser.CurrentLineNumber,
                remedy="such entities are not read; write the text in its place",
            )  # fmt: skip

    def begin(*_: Any) -> None:
        raise _DeclaredError

    parser.EntityDeclHandler = declared
    parser.StartElementHandler = begin
    with suppress(_DeclaredError, expat.ExpatError):
        parser.Parse(content, True)


def _line(error: Any) -> int | None:
    """Return the line that a parser found wrong, if it says so."""
    if hasattr(error, "getLineNumber"):  # xml.sax
        number: int | None = error.getLineNumber()
        return number
    lines = getattr(error, "lines", None)  # Turtle, counted from 0
    return lines + 1 if isinstance(lines, int) else None


def _reason(error: Any) -> str:
    if hasattr(error, "getMessage"):  # xml.sax
        return str(error.getMessage())
    return str(getattr(error, "_why", error)) or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep rdflib from writing a warning for every odd URI or date."""
    logger = logging.getLogger("rdflib")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _concepts(graph: Graph) -> tuple[list[Any], int, int]:
    """Return the concepts in use, how many are deprecated, and how many have no URI."""
    from rdflib import URIRef
    from rdflib.namespace import OWL, RDF, SKOS

    all_concepts = set(graph.subjects(RDF.type, SKOS.Concept))
    named = {uri for uri in all_concepts if isinstance(uri, URIRef)}
    old = {uri for uri, value in graph.subject_objects(OWL.deprecated) if str(value).lower() in ("true", "1")}
    return sorted(named - old), len(named & old), len(all_concepts) - len(named)


def _names(graph: Graph, uri: Any) -> list[tuple[str, str]]:
    """Return (language tag, preferred label) pairs."""
    from rdflib.namespace import RDFS, SKOS

    preferred = _literals(graph, uri, SKOS.prefLabel)
    return preferred or _literals(graph, uri, RDFS.label)


def _alts(graph: Graph, uri: Any) -> list[tuple[str, str]]:
    from rdflib.namespace import SKOS

    return _literals(graph, uri, SKOS.altLabel)


def _literals(graph: Graph, uri: Any, predicate: Any) -> list[tuple[str, str]]:
    from rdflib import Literal

    values = [value for value in graph.objects(uri, predicate) if isinstance(value, Literal)]
    return [(value.language or "", " ".join(str(value).split())) for value in values if str(value).strip()]


def _notation(graph: Graph, uri: Any) -> str | None:
    from rdflib.namespace import SKOS

    return min((str(value) for value in graph.objects(uri, SKOS.notation)), default=None)


def _broader(graph: Graph, concepts: list[Any]) -> tuple[dict[Any, list[str]], int]:
    """Return the broader concepts of each (``skos:broader``, ``skos:narrower``), and how many links lead outside."""
    from rdflib.namespace import SKOS

    known = set(concepts)
    pairs = set(graph.subject_objects(SKOS.broader))
    pairs |= {(below, above) for above, below in graph.subject_objects(SKOS.narrower)}
    pairs = {(below, above) for below, above in pairs if below in known}
    inside = {(below, above) for below, above in pairs if above in known}
    broader: dict[Any, list[str]] = {uri: [] for uri in concepts}
    for below, above in sorted(inside):
        broader[below].append(str(above))
    return broader, len(pairs) - len(inside)
