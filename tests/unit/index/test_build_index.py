"""Building and loading indexes by kind."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from megalabel.errors import DataError, SettingError, WriteError
from megalabel.index import BeamIndex, ExactIndex, HnswIndex, IvfIndex, build_index, load_index
from megalabel.index._store import _record, _seal


def test_each_kind_with_its_settings():
    vectors = torch.eye(40)
    assert isinstance(build_index(vectors), ExactIndex)
    graph = build_index(vectors, "hnsw", M=5, ef_search=9, seed=2)
    assert isinstance(graph, HnswIndex)
    assert graph.settings() == {"M": 5, "ef_construction": 100, "ef_search": 9, "seed": 2}
    lists = build_index(vectors, "ivf", nlist=3, nprobe=2)
    assert isinstance(lists, IvfIndex)
    assert lists.settings() == {"nlist": 3, "nprobe": 2, "pq": None, "rerank": 10, "seed": 0}
    tree = build_index(vectors, "beam", leaf=4, branches=2, beam=3)
    assert isinstance(tree, BeamIndex)
    assert tree.settings() == {"clusters": 10, "leaf": 4, "branches": 2, "beam": 3, "seed": 0}


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [("hnws", {}, "did you mean 'hnsw'"), ("ivf", {"nprob": 3}, "did you mean 'nprobe'"), ("exact", {"M": 3}, "leave")],
)
def test_wrong_names(kind, settings, words):
    with pytest.raises(SettingError, match=words):
        build_index(torch.eye(2), kind, **settings)


@pytest.fixture(params=["hnsw", "ivf", "pq", "beam"])
def folder(request, tmp_path, make):
    vectors, _ = make(1_100, 8, 1)
    build = {"hnsw": HnswIndex.build, "ivf": IvfIndex.build, "pq": lambda rows: IvfIndex.build(rows, pq=4),
             "beam": BeamIndex.build}  # fmt: skip
    build[request.param](vectors).save(tmp_path / "index")
    return tmp_path / "index"


def refused(folder, words):
    with pytest.raises(DataError, match=words) as error:
        load_index(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def rewrite(folder, **changes):
    """Change the card and seal it again, as another program might."""
    card = json.loads((folder / "index.json").read_bytes()) | changes
    card.pop("seal")
    (folder / "index.json").write_text(json.dumps({**card, "seal": _seal(card)}))


def test_missing_folder(tmp_path):
    refused(tmp_path / "none", "this folder holds no index")
    refused(tmp_path, "this folder holds no index")


def test_no_pickle_and_no_leftovers(folder):
    names = {path.name for path in folder.iterdir()}
    assert names <= {"index.faiss", "index.json", "vectors.npy"}
    assert [path.name for path in folder.parent.iterdir()] == ["index"]
    if "vectors.npy" in names:
        assert np.load(folder / "vectors.npy", allow_pickle=False).shape == (1_100, 8)


@pytest.mark.parametrize("name", ["index.faiss", "vectors.npy"])
def test_damaged_files(folder, name):
    path = folder / name
    if not path.exists():
        return
    whole = path.read_bytes()
    for at in np.random.default_rng(0).integers(len(whole), size=10):  # one byte
        spoilt = bytearray(whole)
        spoilt[at] ^= 0x40
        path.write_bytes(spoilt)
        refused(folder, "changed after it was saved")
    path.write_bytes(whole[: len(whole) // 2])
    refused(folder, "bytes instead of")
    path.write_bytes(b"")
    refused(folder, "0 bytes instead of")
    path.unlink()
    refused(folder, "no such file")


def test_damaged_card(folder):
    path = folder / "index.json"
    whole = path.read_bytes()
    for spoilt in (b"", b"[]", b"{}", b"\xff\x00", whole[:40], b'"text"'):
        path.write_bytes(spoilt)
        refused(folder, "not the card of an index")
    path.write_bytes(whole.replace(b"1100", b"1101"))
    refused(folder, "changed after it was saved")


def test_cards_of_other_indexes(folder):
    rewrite(folder, format=99)
    refused(folder, "format 99")
    rewrite(folder, format=1, kind="tree")
    refused(folder, "unknown kind 'tree'")


def test_the_other_kind(folder):
    other = IvfIndex if json.loads((folder / "index.json").read_bytes())["kind"] == "hnsw" else HnswIndex
    with pytest.raises(DataError, match="this index is of kind"):
        other.load(folder)


def test_replaced_files_with_a_valid_card(folder):
    card = json.loads((folder / "index.json").read_bytes())
    rewrite(folder, labels=7)
    refused(folder, "of 1,100 vectors")
    rewrite(folder, labels=1_100)
    (folder / "index.faiss").write_bytes(b"text, not an index" * 10)
    rewrite(folder, files={**card["files"], "index.faiss": _record(folder / "index.faiss")})
    refused(folder, "faiss cannot read this file")


def test_an_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError):
        HnswIndex.build(torch.eye(4)).save(tmp_path / "file" / "index")
    assert (tmp_path / "file").read_text() == ""


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    import faiss

    def full(index, path):
        Path(path).write_bytes(b"half")
        raise RuntimeError("Error in write_index at io.cpp:1: Error: 'ret == n' failed: No space left on device")

    index = IvfIndex.build(torch.eye(4))
    monkeypatch.setattr(faiss, "write_index", full)
    with pytest.raises(WriteError, match="No space left") as error:
        index.save(tmp_path / "index")
    assert str(error.value).startswith(str(tmp_path / "index" / "index.faiss"))
    assert list(tmp_path.iterdir()) == []


def test_files_are_mapped_not_read(folder):
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    held = load_index(folder)
    assert str(folder / "index.faiss") in maps.read_text()
    assert len(held) == 1_100
