import gzip
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from megalabel.data.builtin import build as build_set
from megalabel.data.cache import cache_folder, cached
from megalabel.data.dataset import Dataset
from megalabel.errors import WriteError

KEY = {"set": "toy", "builder": 1, "seed": 0}


def toy() -> Dataset:
    data = build_set("synthetic:points=50,labels=12")
    return data.replace(train=replace(data.train, filter=np.array([[0, 3], [7, 11]])))


def same(one: Dataset, other: Dataset) -> bool:
    assert list(one.splits) == list(other.splits)
    for first, second in zip(one.splits.values(), other.splits.values(), strict=True):
        assert list(first.texts) == list(second.texts)
        assert list(first.uids) == list(second.uids)
        for name in ("indptr", "indices", "data"):
            left, right = getattr(first.targets, name), getattr(second.targets, name)
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
        assert np.array_equal(first.filter, second.filter)
    assert list(one.labels.texts) == list(other.labels.texts)
    return (one.name, one.about, one.licence, one.propensity) == (
        other.name,
        other.about,
        other.licence,
        other.propensity,
    )


@pytest.fixture
def builds():
    """How often toy() was built."""
    return []


@pytest.fixture
def get(tmp_path, monkeypatch, builds):
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path))

    def work(key=KEY, **more):
        return cached(key, lambda: builds.append(1) or toy(), **more)

    return work


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "data").iterdir())


def test_place(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("data", "x") == tmp_path / "own" / "data" / "x"
    monkeypatch.delenv("MEGALABEL_CACHE")
    assert cache_folder("data") == tmp_path / "xdg" / "megalabel" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "megalabel"
    assert not (tmp_path / "home").exists()


def test_no_home(monkeypatch):
    monkeypatch.delenv("MEGALABEL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(WriteError, match="set MEGALABEL_CACHE"):
        cache_folder()
    said = []
    assert same(cached(KEY, toy, say=said.append), toy())
    assert said[0].startswith("toy is not cached: there is no home folder")


def test_built_once_and_the_same_ever_after(get, builds, tmp_path):
    said = []
    first = get()
    again = get({key: KEY[key] for key in reversed(KEY)}, say=said.append)
    assert len(builds) == 1
    assert same(first, again)
    assert len(first.train.filter)
    assert said == [f"synthetic: read from the cache, {entries(tmp_path)[0]}"]


def test_other_key_other_entry(get, builds, tmp_path):
    get()
    get(KEY | {"seed": 1})
    get(KEY | {"builder": 2})
    assert len(builds) == 3
    assert len(entries(tmp_path)) == 3


def test_not_worth_keeping(get, builds, tmp_path):
    get(keep=lambda: False)
    get(keep=lambda: False)
    assert len(builds) == 2
    assert not (tmp_path / "data").exists()


def damage_cut(folder):
    path = folder / "trn.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])


def damage_content(folder):
    path = folder / "tst.jsonl.gz"
    size = path.stat().st_size
    path.write_bytes(gzip.compress(b"{}\n").ljust(size, b"\0"))


def damage_one_label(folder):
    """The same size, a set that reads well, and one other label."""
    path = folder / "filter_trn.txt.gz"
    content = gzip.decompress(path.read_bytes())
    changed = gzip.compress(content.replace(b"7 11", b"7 10"), mtime=0)
    path.write_bytes(changed)
    entry = folder / "entry.json"
    entry.write_text(re.sub(r'("filter_trn.txt.gz": )\d+', rf"\g<1>{len(changed)}", entry.read_text()))


def damage_missing_filter(folder):
    (folder / "filter_trn.txt.gz").unlink()


def damage_entry(folder):
    (folder / "entry.json").write_text('{"key": [')


def damage_other_key(folder):
    path = folder / "entry.json"
    path.write_text(path.read_text().replace("toy", "boy"))


def damage_empty_entry(folder):
    (folder / "entry.json").write_text("[]")


@pytest.mark.parametrize(
    "damage",
    [
        damage_cut,
        damage_content,
        damage_one_label,
        damage_missing_filter,
        damage_entry,
        damage_other_key,
        damage_empty_entry,
    ],
)
def test_damaged_entries_are_built_again(damage, get, builds, tmp_path):
    get()
    damage(entries(tmp_path)[0])
    said = []
    assert same(get(say=said.append), toy())
    assert len(builds) == 2
    assert said[0].startswith("a damaged cache entry is rebuilt")
    get()
    assert len(builds) == 2
    assert len(entries(tmp_path)) == 1  # nothing is left lying about


def test_damage_is_said_where_nobody_listens(get, capsys, tmp_path):
    get()
    damage_one_label(entries(tmp_path)[0])
    assert same(get(), toy())
    assert capsys.readouterr().err.startswith("a damaged cache entry is rebuilt")


def test_half_an_entry_is_none(get, builds, tmp_path):
    get()
    (entries(tmp_path)[0] / "entry.json").unlink()
    get()
    get()
    assert len(builds) == 2


def test_cache_that_cannot_be_written(get, builds, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path / "file" / "cache"))
    said = []
    assert same(get(say=said.append), toy())
    get()
    assert len(builds) == 2
    assert said[0].startswith("toy is not cached: ")


def test_failed_build_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        cached(KEY, lambda: 1 // 0)
    assert not list(tmp_path.iterdir())


SCRIPT = """
from megalabel.data.builtin import build
from megalabel.data.cache import cached
for seed in range(15):
    data = cached({"set": "toy", "seed": seed}, lambda: build(f"synthetic:points=60,labels=9,seed={seed}"))
    assert data.train.texts == build(f"synthetic:points=60,labels=9,seed={seed}").train.texts
"""


def test_processes_at_once(tmp_path, get):
    surroundings = os.environ | {
        "MEGALABEL_CACHE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    work = [subprocess.Popen([sys.executable, "-c", SCRIPT], env=surroundings) for _ in range(3)]
    assert [process.wait() for process in work] == [0, 0, 0]
    assert len([path for path in entries(tmp_path) if not path.name.startswith(".")]) == 15
    said = []
    get({"set": "toy", "seed": 3}, say=said.append)
    assert "read from the cache" in said[0]
