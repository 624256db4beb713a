"""``megalabel cache``."""

import json

from megalabel.data.texts import Texts


def test_info_and_clear(call, tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path / "cache"))
    assert call("cache", "info")[0] == 0
    folder = tmp_path / "cache" / "tokens" / "a"
    folder.mkdir(parents=True)
    (folder / "ids.bin").write_bytes(b"x" * 2_000_000)
    code, out, _ = call("cache", "info")
    assert code == 0 and "tokens  1 entry, 2.0 MB" in out and "limit   10 GB" in out
    assert json.loads(call("cache", "info", "--json")[1])["tokens"] == {"entries": 1, "bytes": 2_000_000}
    assert call("cache", "clear")[1] == "1 entry removed, 2.0 MB\n"
    assert not folder.exists()
    code, out, err = call("cache", "clear", "tokns")
    assert (code, out) == (2, "") and "did you mean 'tokens'" in err


def test_what_is_in_use_is_left(call, tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path))
    monkeypatch.setenv("MEGALABEL_MAP_ABOVE", "0")
    texts = Texts.of(["red", "blue"])
    assert "mapped  1 entry" in call("cache", "info")[1]
    assert call("cache", "clear")[1] == "0 entries removed, 0.0 MB\n1 entry left: in use, or not yours to remove\n"
    assert json.loads(call("cache", "clear", "mapped", "--json")[1]) == {"entries": 0, "bytes": 0, "left": 1}
    assert texts == ["red", "blue"]
