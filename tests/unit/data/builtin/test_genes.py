import sqlite3

import numpy as np
import pytest

from megalabel.data.builtin import build, genes
from megalabel.errors import DataError


def labels_of(data, uid):
    split = next(split for split in data.splits.values() if uid in split.uids)
    return {data.labels.uids[i] for i in split.targets[split.uids.index(uid)].indices}


def texts_of(part):
    return dict(zip(part.uids, part.texts, strict=True))


def test_small_databases(genes_folder, cache):
    said = []
    data = build(f"genes:path={genes_folder}", say=said.append)
    assert said[0].startswith("genes: 1,300 genes with 3,900 annotations from ")
    assert (len(data.train), len(data.test)) == (1_040, 260)
    texts = texts_of(data.train) | texts_of(data.test)
    assert texts["gene:5007"] == "FAM7 family 7 member 7"
    assert "gene:9999" not in texts
    assert texts_of(data.labels)["GO:0000004"] == "term 4: What 4 is."
    assert data.about.endswith("annotated with, release 2024-01-01")
    assert data.licence.startswith("Gene Ontology, CC BY 4.0")


def test_annotations_that_count(genes_folder, cache):
    data = build(f"genes:path={genes_folder}")
    for number in (0, 17, 1_299):
        family = number % 10
        assert labels_of(data, f"gene:{5_000 + number}") == {f"GO:000000{family}", f"GO:000001{family}"}
    assert "GO:0000020" not in data.labels.uids  # 1,040 train points have it
    assert "GO:0000021" not in data.labels.uids  # no term of this ontology


def test_term_without_a_definition(genes_folder, cache, monkeypatch):
    monkeypatch.setattr(genes, "MOST_POINTS", 2_000)
    assert texts_of(build(f"genes:path={genes_folder}").labels)["GO:0000020"] == "term 20"


def test_seed_and_content_are_the_key(genes_folder, cache):
    first, other = (build(f"genes:path={genes_folder},seed={seed}") for seed in (0, 1))
    assert set(first.test.uids) != set(other.test.uids)
    with sqlite3.connect(genes_folder / "GO.db/extdata/GO.sqlite") as base:
        base.execute("UPDATE go_term SET term = 'new name' WHERE _id = 4")
    base.close()
    assert texts_of(build(f"genes:path={genes_folder}").labels)["GO:0000004"] == "new name: What 4 is."


def test_libraries_of_r(genes_folder, cache, monkeypatch, fingerprint):
    monkeypatch.setattr(genes, "LIBRARIES", ("/no/such/library", str(genes_folder)))
    assert fingerprint(build("genes")) == fingerprint(build(f"genes:path={genes_folder}"))


def test_missing_source(genes_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(genes, "LIBRARIES", (str(tmp_path),))
    with pytest.raises(DataError, match=r"no org.Hs.eg.sqlite on this machine; on Debian apt install r-bioc-org.hs.eg"):
        build("genes")
    (genes_folder / "GO.db/extdata/GO.sqlite").unlink()
    with pytest.raises(
        DataError, match=r"there is no GO.sqlite in this folder; on Debian .* or give genes:path=FOLDER"
    ):
        build(f"genes:path={genes_folder}")


@pytest.mark.parametrize("content", [b"", b"hello" * 400])
def test_no_database(content, genes_folder, cache):
    (genes_folder / "GO.db/extdata/GO.sqlite").write_bytes(content)
    with pytest.raises(DataError, match=r"GO.sqlite: this is not a Bioconductor database \("):
        build(f"genes:path={genes_folder}")


def test_no_annotation(genes_folder, cache):
    with sqlite3.connect(genes_folder / "GO.db/extdata/GO.sqlite") as base:
        base.execute("DELETE FROM go_term")
    base.close()
    with pytest.raises(DataError, match="genes: 0 points are too few"):
        build(f"genes:path={genes_folder}")


def test_databases_are_not_changed(genes_folder, cache):
    def files():
        return {path: path.read_bytes() for path in genes_folder.rglob("*") if path.is_file()}

    before = files()
    build(f"genes:path={genes_folder}")
    assert files() == before


def test_real_packages(cache):
    try:
        genes._file(None, genes.GENES), genes._file(None, genes.TERMS)
    except DataError as error:
        pytest.skip(str(error))
    data = build("genes")
    assert len(data.train) > 14_000
    assert len(data.test) > 3_500
    assert len(data.labels) > 15_000
    assert 8 < np.diff(data.train.targets.indptr).mean() < 20
    assert 1 <= data.counts.min() <= data.counts.max() <= genes.MOST_POINTS
    assert not set(data.train.texts) & set(data.test.texts)
