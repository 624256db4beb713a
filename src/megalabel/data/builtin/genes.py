"""genes: human genes and the Gene Ontology terms they are annotated with, from two Bioconductor packages.

Text of a point: ``symbol name`` of a gene. Labels: processes, functions and places in the
cell that an annotation names (not their broader terms), text ``term: definition``.
Annotations without evidence do not count. Labels with more than 1,000 train points
(protein binding, nucleus and the like) say little about a gene and are dropped.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.builtin._items import Items, split_items
from megalabel.data.builtin.settings import Setting
from megalabel.data.cache import cached
from megalabel.errors import DataError
from megalabel.files import open_bytes

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["SETTINGS", "build"]

VERSION = 1  # of this builder; a new number invalidates cached sets
TEST_SHARE = 0.2
MOST_POINTS = 1_000  # train points of one label
BLOCK = 1 << 20  # bytes read at once
GENES, TERMS = "org.Hs.eg.sqlite", "GO.sqlite"
PLACES = {GENES: "org.Hs.eg.db/extdata", TERMS: "GO.db/extdata"}  # in an R library
LIBRARIES = ("/usr/local/lib/R/site-library", "/usr/lib/R/site-library", "/usr/lib/R/library")
REMEDY = (
    "on Debian apt install r-bioc-org.hs.eg.db r-bioc-go.db, "
    f"or give genes:path=FOLDER with {GENES} and {TERMS} somewhere in it"
)

GENE_ROWS = "SELECT gene_id, symbol, gene_name FROM genes JOIN gene_info USING (_id)"
TERM_ROWS = "SELECT go_id, term, definition FROM go_term"
RELEASE_ROWS = "SELECT value FROM metadata WHERE name = 'GOSOURCEDATE'"
PAIR_ROWS = " UNION ".join(
    f"SELECT gene_id, go_id FROM {table} JOIN genes USING (_id) WHERE evidence <> 'ND'"  # no data
    for table in ("go_bp", "go_mf", "go_cc")
)

SETTINGS = {
    "path": Setting("path", None, f"a folder with {GENES} and {TERMS} somewhere in it; the libraries of R"),
    "seed": Setting("whole", 0, "which genes are test points"),
}


def build(values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
    """Return the set, from the cache if the same databases were read before."""
    genes, terms = (_file(values["path"], name) for name in (GENES, TERMS))
    content = hashlib.sha256()
    for path in (genes, terms):
        with open_bytes(path) as stream:
            while block := stream.read(BLOCK):
                content.update(block)
    key = {"set": "genes", "builder": VERSION, "seed": values["seed"], "content": content.hexdigest()}
    return cached(key, lambda: _make(genes, terms, values["seed"], say), say=say)


def _file(path: Path | None, name: str) -> Path:
    if path is not None:
        file = min(path.rglob(name), default=None)
        if file is None:
            raise DataError(f"there is no {name} in this folder", path=path, remedy=REMEDY)
        return file
    for library in LIBRARIES:
        file = Path(library) / PLACES[name] / name
        if file.is_file():
            return file
    raise DataError(f"there is no {name} on this machine", remedy=REMEDY)


def _make(genes: Path, terms: Path, seed: int, say: Callable[[str], None]) -> Dataset:
    texts = {uid: f"{term}: {said}" if said else term for uid, term, said in _rows(terms, TERM_ROWS)}
    named = {f"gene:{uid}": f"{symbol} {name}".strip() for uid, symbol, name in _rows(genes, GENE_ROWS)}
    annotations = [(f"gene:{gene}", term) for gene, term in _rows(genes, PAIR_ROWS) if term in texts]
    texts |= {uid: named[uid] for uid in {gene for gene, _ in annotations}}
    release = "".join(value for (value,) in _rows(terms, RELEASE_ROWS)) or "unknown"
    uids = sorted(texts)
    number = {uid: i for i, uid in enumerate(uids)}
    pairs = np.array([(number[a], number[b]) for a, b in annotations], dtype=np.int64).reshape(-1, 2)
    annotated = len({gene for gene, _ in annotations})
    say(f"genes: {annotated:,} genes with {len(annotations):,} annotations from {genes}, {terms}")
    return split_items(
        Items([texts[uid] for uid in uids], uids, pairs),
        name="genes",
        about=f"human genes and the Gene Ontology terms they are annotated with, release {release}",
        licence="Gene Ontology, CC BY 4.0; gene names of NCBI, free; packages of Bioconductor, Artistic-2.0",
        share=TEST_SHARE,
        seed=seed,
        max_points=MOST_POINTS,
    )


def _rows(path: Path, query: str) -> list[tuple[str, ...]]:
    """Return the rows of a query to a database of AnnotationDbi, opened read-only."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
            return [tuple(" ".join(str(value or "").split()) for value in row) for row in base.execute(query)]
    except sqlite3.Error as error:
        raise DataError(f"this is not a Bioconductor database ({error})", path=path, remedy=REMEDY) from error
