"""Shared by the tests of built-in sets."""

import gzip
import hashlib
import sqlite3

import pytest


def fingerprint_of(data) -> str:
    """Return a hash of everything a set holds."""
    content = hashlib.sha256(repr((data.name, data.about, data.licence, data.propensity, data.points)).encode())
    for split in data.splits.values():
        for array in (split.targets.indptr, split.targets.indices, split.targets.data, split.filter):
            content.update(repr((array.dtype, array.shape)).encode() + array.tobytes())
        content.update("\n".join([*split.texts, *split.uids]).encode())
    content.update("\n".join([*data.labels.texts, *data.labels.uids]).encode())
    return content.hexdigest()


@pytest.fixture
def fingerprint():
    return fingerprint_of


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MEGALABEL_CACHE", str(folder))
    return folder


@pytest.fixture
def wordnet_folder(tmp_path):
    """A small WordNet: a ring of nouns, verbs hanging on nouns, an adjective and its satellite, an adverb."""
    folder = tmp_path / "dict"
    folder.mkdir()
    licence = "  1 This software and database is being provided to you under a licence.  \n"
    nouns = []
    for i in range(60):
        before, after = (i - 1) % 60, (i + 1) % 60
        pointers = (
            f"002 @ {before:08d} n 0000 ~ {after:08d} n 0000"
            if i >= 10
            else (f"003 @ {before:08d} n 0000 ~ {after:08d} n 0000 + {i:08d} v 0102")
        )
        nouns.append(f'{i:08d} 03 n 02 thing_{i} 0 object{i}(p) 0 {pointers} | noun number {i}; "a thing"  \n')
    verbs = [f"{i:08d} 29 v 01 do{i} 0 001 + {i:08d} n 0201 01 + 02 00 | verb number {i}  \n" for i in range(10)]
    adjectives = [
        "00000000 00 a 01 big(a) 0 001 & 00000001 a 0000 | above average  \n",
        "00000001 00 s 01 huge 0 001 & 00000000 s 0000 | very big  \n",
    ]
    adverbs = ["00000000 02 r 01 hugely 0 001 \\ 00000001 a 0101 | in a huge way  \n"]
    parts = {"noun": nouns, "verb": verbs, "adj": adjectives, "adv": adverbs}
    for part, lines in parts.items():
        (folder / f"data.{part}").write_text(licence + "".join(lines))
    return folder


@pytest.fixture
def packages_file(tmp_path):
    """A Packages file: programs that need libraries, all need libc6, some name what is not there."""
    stanzas = ["Package: libc6\nDescription: GNU C Library\n"]
    stanzas += [f"Package: libthing{i}\nDescription: library of things {i}\nDepends: libc6\n" for i in range(40)]
    for i in range(560):
        stanzas.append(
            f"Package: prog{i}\nVersion: 1.0-{i}\n"
            f"Pre-Depends: libthing{i % 40}\n"
            f"Depends: libc6 (>= 2.34), ghost | libthing{(i + 1) % 40} (>= 1) | libthing0, mail-agent\n"
            f"Suggests: prog{(i + 1) % 560}:any\n"
            f"Description: program number {i}\n"
            " A longer text: not the synopsis.\n"
            "Tag: use::testing\n"
        )
    path = tmp_path / "Packages"
    path.write_text("\n".join(stanzas))
    return path


@pytest.fixture
def manual_folder(tmp_path):
    """Extracted packages: a ring of tools, a library with links, perl modules, and files that do not count."""
    folder = tmp_path / "packages"

    def write(package, name, content, pack=True):
        path = folder / package / "usr/share/man" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode(), mtime=0) if pack else content.encode())
        return path

    def page(names, description, see):
        return f'.TH X 1\n.SH NAME\n{names} \\- {description}\n.SH "SEE ALSO"\n{see}\n'

    for i in range(30):
        see = f".BR tool{(i + 1) % 30} (1),\n.BR tool{(i + 7) % 30} (1),\n.BR ghost (1), shared(3)"
        write("tools_1:2.0-1", f"man1/tool{i}.1.gz", page(f"tool{i}", f"use number {i}", see))
        modules = f"Some::Module{(i + 1) % 30}, Carp and tool{i}(1)"
        write("libsome-perl_0.5", f"man3/Some::Module{i}.3pm.gz", page(f"Some::Module{i}", f"module {i}", modules))
    write(
        "tools_1:2.0-1", "man1/tool1.1.gz", page("tool1", "use number 1", ".BR tool1 (1), old (1), copy(3), print(3)")
    )
    write("tools_1:2.0-1", "man1/old.1", ".so man1/tool2.1\n", pack=False)
    write("tools_1:2.0-1", "man1/broken.1.gz", "not packed", pack=False)
    write("tools_1:2.0-1", "de/man1/tool1.1.gz", page("tool1", "benutze Nummer 1", "tool5(1)"))
    write("tools_1:2.0-1", "man1/README", "nothing")
    write("libshared-dev_1.0_amd64", "man3/shared.3.gz", page("shared, print", "share things", ".BR tool0 (1)"))
    write("libshared-dev_1.0_amd64", "man3/copy.3.gz", page("shared, print", "share things", ".BR tool3 (1)"))
    link = write("libshared-dev_1.0_amd64", "man3/linked.3.gz", "")
    link.unlink()
    link.symlink_to("shared.3.gz")
    write("other_3", "man1/tool4.1.gz", page("tool4", "an other tool of that name", ".BR tool9 (1)"))
    write("other_3", "man1/tool5.1other.gz", page("tool5", "use number 5", ".BR tool4 (1), linked(3)"))
    write("perl_5", "man3/Carp.3perl.gz", page("Carp", "warn of errors", "Some::Module3"))
    write("perl_5", "man1/same.1.gz", page("same", "look alike", "Carp(3perl)"))
    write("perl_5", "man8/same.8.gz", page("same", "look alike", "Carp(3perl), same(1)"))
    return folder


@pytest.fixture
def hpo_folder(tmp_path):
    """A small Human Phenotype Ontology: 60 diseases with three of 12 phenotypes each, and lines that do not count."""
    folder = tmp_path / "hpo"
    folder.mkdir()
    terms = [
        f"[Term]\nid: HP:{i:07d}\nname: Sign {i}\nalt_id: HP:9{i:06d}\n"
        f'def: "A \\"sign\\" of number {i}." [PMID:{i}]\nis_a: HP:0000118 ! Phenotypic abnormality\n'
        for i in range(12)
    ]
    terms.append("[Term]\nid: HP:0000012\nname: Sign without words\n")
    terms.append("[Term]\nid: HP:0000013\nname: obsolete Sign\nis_obsolete: true\nreplaced_by: HP:0000001\n")
    terms.append("[Typedef]\nid: part_of\nname: part of\n")
    (folder / "hp.obo").write_text("format-version: 1.2\ndata-version: hp/releases/2024-01-01\n\n" + "\n".join(terms))
    lines = [
        '#description: "HPO annotations for rare diseases"',
        "database_id\tdisease_name\tqualifier\thpo_id\treference\tevidence\tonset\tfrequency\tsex\tmodifier\taspect\tbiocuration",
    ]

    def add(uid, name, term, qualifier="", aspect="P"):
        lines.append(f"{uid}\t{name}\t{qualifier}\tHP:{term:07d}\tPMID:1\tPCS\t\t1/2\t\t\t{aspect}\tHPO:me[2024-01-01]")

    for i in range(60):
        uid, name = f"OMIM:{100000 + i}", f"Disease {i}, type A"
        for term in (i % 12, (i + 1) % 12, 9_000_000 + (i + 2) % 12):  # the last by its old uid
            add(uid, name, term)
        add(uid, name, (i + 5) % 12, qualifier="NOT")
        add(uid, name, (i + 6) % 12, aspect="I")
        add(uid, name, 13)
    add("ORPHA:7", "Type A disease 7", 12)  # disease 7 again, in other words
    add("OMIM:100007", "Seventh disease", 12)  # an old name
    (folder / "phenotype.hpoa").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def genes_folder(tmp_path):
    """A folder with the two databases: 1,300 genes in ten families, one term of all, lines that do not count."""
    library = tmp_path / "library"
    for name, statements in GENE_TABLES.items():
        path = library / name
        path.parent.mkdir(parents=True)
        with sqlite3.connect(path) as base:
            for statement in statements:
                base.execute(statement)
        base.close()
    return library


# Numbers 0 to 1,299: genes; terms 0 to 9 are processes, 10 to 19 functions, 20 a place of all genes, 21 unknown to GO.
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1299)"
GENE_TABLES = {
    "org.Hs.eg.db/extdata/org.Hs.eg.sqlite": [
        "CREATE TABLE genes (_id INTEGER PRIMARY KEY, gene_id VARCHAR(10) NOT NULL UNIQUE)",
        "CREATE TABLE gene_info (_id INTEGER NOT NULL UNIQUE, gene_name VARCHAR(255) NOT NULL, symbol VARCHAR(80))",
        *(
            f"CREATE TABLE {name} (_id INTEGER NOT NULL, go_id CHAR(10) NOT NULL, evidence CHAR(3) NOT NULL)"
            for name in ("go_bp", "go_mf", "go_cc")
        ),
        f"{_NUMBERS} INSERT INTO genes SELECT i, 5000 + i FROM n",
        f"{_NUMBERS} INSERT INTO gene_info SELECT i, 'family ' || (i % 10) || '  member ' || i, 'FAM' || i FROM n",
        f"{_NUMBERS} INSERT INTO go_bp SELECT i, 'GO:000000' || (i % 10), 'IDA' FROM n",
        f"{_NUMBERS} INSERT INTO go_bp SELECT i, 'GO:000000' || (i % 10), 'IEA' FROM n",
        f"{_NUMBERS} INSERT INTO go_bp SELECT i, 'GO:0000021', 'IEA' FROM n",
        f"{_NUMBERS} INSERT INTO go_mf SELECT i, 'GO:000001' || (i % 10), 'TAS' FROM n",
        f"{_NUMBERS} INSERT INTO go_mf SELECT i, 'GO:000001' || ((i + 1) % 10), 'ND' FROM n",
        f"{_NUMBERS} INSERT INTO go_cc SELECT i, 'GO:0000020', 'IBA' FROM n",
        "INSERT INTO genes VALUES (9999, '9999')",
        "INSERT INTO gene_info VALUES (9999, 'gene without a term', 'NONE1')",
    ],
    "GO.db/extdata/GO.sqlite": [
        "CREATE TABLE go_term (_id INTEGER PRIMARY KEY, go_id CHAR(10) NOT NULL UNIQUE, term VARCHAR(255) NOT NULL,"
        " ontology VARCHAR(9) NOT NULL, definition TEXT NULL)",
        f"{_NUMBERS} INSERT INTO go_term SELECT i, printf('GO:%07d', i), 'term ' || i, 'BP', 'What ' || i || ' is.'"
        " FROM n WHERE i < 20",
        "INSERT INTO go_term VALUES (20, 'GO:0000020', 'term 20', 'CC', NULL)",
        "CREATE TABLE metadata (name VARCHAR(80) PRIMARY KEY, value VARCHAR(255))",
        "INSERT INTO metadata VALUES ('GOSOURCEDATE', '2024-01-01')",
    ],
}


@pytest.fixture
def numpydoc_package(tmp_path):
    """The folder of a package that follows numpydoc, with modules that print, warn, raise and exit."""
    root = tmp_path / "site"
    package = root / "tinydoc"
    (package / "tests").mkdir(parents=True)
    functions = "".join(
        f'def f{i}():\n    """Do thing number {i}.\n\n    See Also\n    --------\n'
        f'    f{(i + 1) % 30}, f{(i + 7) % 30} : Others.\n    Thing.turn\n    """\n'
        for i in range(30)
    )
    thing = '''
from collections import OrderedDict
from os.path import join


class _Text:
    """Texts of a thing."""

    def upper(self):
        """Return upper case.

        See Also
        --------
        Thing.turn
        """


class _Accessor:
    def __init__(self, kind):
        self.kind = kind

    def __get__(self, thing, owner):
        return self.kind if thing is None else self.kind(thing)


class Thing(OrderedDict):
    """A thing."""

    text = _Accessor(_Text)

    def turn(self):
        """Turn the thing.

        See Also
        --------
        size
        """

    @property
    def size(self):
        """The size."""

    def _hidden(self):
        """Hidden."""


class Child(Thing):
    """A child."""
'''
    names = ", ".join(f"f{i}" for i in range(30))
    (package / "__init__.py").write_text(f"from tinydoc.things import Thing, {names}\n")
    (package / "things.py").write_text(thing + functions)
    (package / "noisy.py").write_text(
        "import os, sys, warnings\nprint('noise')\nos.write(2, b'noise')\nwarnings.warn('noise')\n"
    )
    (package / "raising.py").write_text("raise RuntimeError\n")
    (package / "leaving.py").write_text("raise SystemExit(3)\n")
    (package / "inner").mkdir()
    (package / "inner" / "__init__.py").write_text("")
    (package / "_hidden.py").write_text("def hidden():\n    '''Hidden.'''\n")
    (package / "tests" / "__init__.py").write_text("raise RuntimeError\n")
    return root
