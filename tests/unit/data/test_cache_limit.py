"""The cache has a limit: the longest unused entries go, those in use stay."""

import os
import time

import pytest

from megalabel.data.cache import cache_entries, cache_folder, clear_cache, trim_cache, use_entry
from megalabel.errors import SettingError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path))
    now = time.time()
    for kind, name, hours in (("tokens", "old", 9), ("data", "older", 10), ("tokens", "new", 0)):
        folder = cache_folder(kind, name)
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 400)
        os.utime(folder, (now - 3600 * hours,) * 2)
    return tmp_path


def names():
    return sorted(entry.path.name for entries in cache_entries().values() for entry in entries)


@pytest.mark.parametrize(
    ("limit", "left"), [("1", ["new", "old", "older"]), ("1e-6", ["new", "old"]), ("5e-7", ["new"]), ("0", ["new"])]
)
def test_the_longest_unused_go(cache, monkeypatch, limit, left):
    monkeypatch.setenv("MEGALABEL_CACHE_LIMIT", limit)
    trim_cache()
    assert names() == left


def test_use_counts(cache, monkeypatch):
    monkeypatch.setenv("MEGALABEL_CACHE_LIMIT", "9e-7")
    use_entry(cache_folder("data", "older"))
    trim_cache()
    assert names() == ["new", "older"]


def test_clear(cache):
    assert clear_cache("tokens") == (2, 800)
    assert names() == ["older"]
    assert clear_cache() == (1, 400)
    assert clear_cache() == (0, 0)
    with pytest.raises(SettingError, match="the cache has no 'token'"):
        clear_cache("token")


def test_a_wrong_limit(cache, monkeypatch):
    monkeypatch.setenv("MEGALABEL_CACHE_LIMIT", "much")
    with pytest.raises(SettingError, match="MEGALABEL_CACHE_LIMIT is 'much'"):
        trim_cache()
