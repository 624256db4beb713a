"""Read the labels of a file of their own: a table, a SKOS vocabulary, or one of Annif's vocabularies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from megalabel.data.dataset import Labels
from megalabel.data.formats import Options
from megalabel.data.formats._cells import joiner, parent_uids, parse_cell
from megalabel.data.formats._delimited import open_delimited
from megalabel.data.formats._skos import SYNTAXES, read_skos
from megalabel.data.formats._sniff import first_line
from megalabel.data.formats._tables import PARENT, Table, read_label_table, text_cell
from megalabel.data.formats._vocabulary import Language, Term, TextParts, count_lines, make_labels
from megalabel.errors import DataError
from megalabel.files import decode, read_lines

__all__ = ["read_label_file", "unbracket", "vocabulary_rows"]

URI, NOTATION, TEXT, LANGUAGE = "uri", "notation", "text", "label_"  # columns of Annif's CSV; text is ours


def read_label_file(path: Path, options: Options) -> Labels:
    """Read uid and text of each label, with names, notations and parents if the file has them.

    SKOS is told by the ending of the name, a vocabulary of Annif by its content; anything else is a table.
    """
    parts = TextParts.parse(options.label_text)
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix in SYNTAXES:
        terms = read_skos(path, options.language, options.say)
        return make_labels(terms, parts, path, None if options.strict else options.say)
    if suffix == ".parquet":
        from megalabel.data.formats.parquet import open_parquet

        return read_label_table(open_parquet(path), options)
    first = first_line(path) or ""
    if first.startswith("<") and "\t" in first:
        return make_labels(_read_tsv(path, options), parts, path)
    table = open_delimited(path, "\t" if suffix == ".tsv" else ",")
    if URI in table.columns and any(column.startswith(LANGUAGE) for column in table.columns):
        return make_labels(_read_csv(table, path, options), parts, path)
    return read_label_table(table, options)


def vocabulary_rows(labels: Labels) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of Annif's CSV vocabulary, with columns of ours for what it has no place for."""
    ids = range(len(labels))
    names = [
        labels.name(label) or labels.uids[label] or "-" for label in ids
    ]  # without a label it counts as deprecated
    columns = {URI: list(map(_bracket, labels.uids)), NOTATION: [labels.concept(i).notation or "" for i in ids]}
    columns[f"{LANGUAGE}en"] = names
    if names != list(labels.texts):
        columns[TEXT] = list(labels.texts)
    if any(labels.parents(label) for label in ids):
        join, _ = joiner(labels.uids)
        above = [[labels.uids[place] for place in labels.parents(label)] for label in ids]
        columns[PARENT[0]] = [join(uids) if uids else "" for uids in above]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def unbracket(uri: str) -> str:
    """Return a URI without the angle brackets that may be around it."""
    return uri[1:-1] if len(uri) > 1 and uri.startswith("<") and uri.endswith(">") else uri


def _bracket(uid: str) -> str:
    return f"<{uid}>" if unbracket(uid) != uid else uid


def _read_csv(table: Table, path: Path, options: Options) -> list[Term]:
    languages = [column for column in table.columns if column.startswith(LANGUAGE)]
    tags = {column: column.removeprefix(LANGUAGE) for column in languages}
    more = [column for column in (NOTATION, TEXT, PARENT[0]) if column in table.columns]
    columns = [URI, *languages, *more]
    rows = [
        (line, dict(zip(columns, (text_cell(path, line, URI, cell) for cell in cells), strict=True)))
        for line, cells in table.rows(columns)
    ]
    counts = {tags[column]: sum(bool(row[column]) for _, row in rows) for column in languages}
    chosen = Language.choose(options.language, {tag: count for tag, count in counts.items() if count}, path)
    order = sorted(languages, key=lambda column: (chosen.rank(tags[column]), column))
    uids = [unbracket(row[URI]) for _, row in rows]
    names = [next((row[column] for column in order if row[column]), "") for _, row in rows]
    above = parent_uids([parse_cell(row.get(PARENT[0], "")) for _, row in rows], Labels(names, uids))
    terms = [
        Term(uid, name, line, (), row.get(NOTATION) or None, parents, row.get(TEXT))
        for (line, row), uid, name, parents in zip(rows, uids, names, above, strict=True)
        if name
    ]
    other = sum(bool(name) and chosen.rank(tags[order[0]]) < 3 and not row[order[0]] for name, (_, row) in zip(
        names, rows, strict=True))  # fmt: skip
    _report(path, "CSV", chosen, terms, len(rows) - len(terms), other, options)
    return terms


def _read_tsv(path: Path, options: Options) -> list[Term]:
    terms: list[Term] = []
    deprecated = 0
    for number, line in read_lines(path):
        text = decode(line, path, number).removesuffix("\r")
        if not text.strip():
            continue
        uri, label, notation = ([part.strip() for part in text.split("\t", 2)] + ["", ""])[:3]
        if not (uri.startswith("<") and uri.endswith(">")):
            raise DataError(f"expected <URI>, a tab and a label, not {text!r:.60}", path=path, line=number)
        if label:
            terms.append(Term(unbracket(uri), label, number, (), notation or None))
        deprecated += not label
    _report(path, "TSV", Language(options.language or ""), terms, deprecated, 0, options)
    return terms


def _report(
    path: Path, kind: str, language: Language, terms: Sequence[Term], deprecated: int, other: int, options: Options
) -> None:
    said = f" in {language.code!r}" if language.code else ""
    options.say(f"{path}: vocabulary of Annif, {kind}, {len(terms):,} subjects{said}")
    found: Mapping[str, int] = {
        "{} subject{s} without a label, deprecated, left out": deprecated,
        f"{{}} subject{{s}} without a label in {language.code!r}: one in another language stands in": other,
    }
    count_lines(options.say, path, found)
