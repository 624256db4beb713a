import shutil
import time

import pytest

from megalabel.encoders import _source
from megalabel.encoders._source import MINILM, folder_of
from megalabel.errors import DataError


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the MiniLM package that a test may change."""
    package = folder_of("minilm").parent
    for name in MINILM:
        target = tmp_path / "package" / "model" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / "model" / name, target)
    (tmp_path / "package" / "__init__.py").touch()
    spec = type("Spec", (), {"origin": str(tmp_path / "package" / "__init__.py")})
    monkeypatch.setattr(_source, "find_spec", lambda name: spec)
    _source._check_minilm.cache_clear()
    yield tmp_path / "package" / "model"
    _source._check_minilm.cache_clear()


def test_published_files_are_accepted_and_checked_once(copied):
    assert folder_of("minilm") == copied
    start = time.perf_counter()
    assert folder_of("minilm") == copied
    assert time.perf_counter() - start < 0.01


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_one_changed_bit_is_noticed(copied, name):
    with (copied / name).open("r+b") as stream:
        stream.seek(-2, 2)
        byte = stream.read(1)[0]
        stream.seek(-2, 2)
        stream.write(bytes([byte ^ 1]))
    with pytest.raises(DataError, match=f"{name}: this is not the file that MiniLM was published with; pip"):
        folder_of("minilm")


def test_missing_and_further_files(copied):
    (copied / "adapter_config.json").write_text("{}")
    with pytest.raises(DataError, match=r"adapter_config.json: this file does not belong to the MiniLM package"):
        folder_of("minilm")
    (copied / "adapter_config.json").unlink()
    (copied / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"vocab.txt: this file cannot be read, no such file"):
        folder_of("minilm")
