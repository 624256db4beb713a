"""Texts in one array of bytes behave like a list of strings, in memory and mapped."""

import gc
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.data import arrays
from megalabel.data.cache import cache_entries, clear_cache, trim_cache
from megalabel.data.texts import Texts, TextWriter, find_texts, first_equal, join_texts, take_texts
from megalabel.errors import DataError, SettingError

ODD = ["", "red", "grün", "日本", "\ud83d", "\ud83d\ude00", "a\0b", "\n", " ", "😀", "red", ""]
ANY = st.lists(st.text(st.characters(), max_size=5), max_size=12)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and every text mapped from it."""
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path))
    monkeypatch.setenv("MEGALABEL_MAP_ABOVE", "0")
    yield tmp_path
    gc.collect()


def entries():
    return [entry.path for entry in cache_entries()["mapped"]]


@pytest.mark.parametrize("above", ["0", "64"])
def test_like_a_list(tmp_path, monkeypatch, above):
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path))
    monkeypatch.setenv("MEGALABEL_MAP_ABOVE", above)
    texts = Texts.of(ODD)
    assert texts == ODD and list(texts) == ODD and len(texts) == len(ODD)
    assert ODD.__eq__(texts) is NotImplemented  # a list leaves it to us
    assert texts != ODD[:-1] and texts != [*ODD[:-1], "x"] and texts != "red"
    assert [texts[i] for i in range(-len(ODD), len(ODD))] == ODD + ODD
    for cut in (slice(None), slice(2, 5), slice(-3, None), slice(None, None, -1), slice(1, 99, 3), slice(5, 2)):
        assert texts[cut] == ODD[cut]
        assert texts[1:][cut] == ODD[1:][cut]
    assert "grün" in texts and "x" not in texts and texts.index("grün") == 2 and texts.count("") == 2
    assert list(reversed(texts)) == ODD[::-1]
    assert [*texts, "x"] == [*ODD, "x"] and set(texts) == set(ODD)
    with pytest.raises(IndexError):
        texts[len(ODD)]
    with pytest.raises(IndexError):
        texts.take([len(ODD)])
    with pytest.raises(TypeError):
        hash(texts)
    assert bool(entries()) == (above == "0")


@given(ANY, ANY, st.data())
def test_any_rows(first, second, data):
    texts = Texts.of(first)
    rows = data.draw(st.lists(st.integers(0, len(first) - 1), max_size=9)) if first else []
    some = texts.take(np.array(rows, dtype=np.int64))
    assert some == [first[row] for row in rows]
    assert some[::2] + second == [first[row] for row in rows][::2] + second
    assert second + some == second + list(some)
    both = texts + Texts.of(second) + some
    assert both == [*first, *second, *some] and list(both[3:9]) == [*first, *second, *some][3:9]
    assert [both[row] for row in range(len(both))] == list(both)
    assert pickle.loads(pickle.dumps(both)) == both


def test_plain_lists_stay_lists():
    assert join_texts(["a"], ("b",)) == ["a", "b"] and type(join_texts(["a"])) is list
    assert type(take_texts(["a", "b"], np.array([1]))) is list
    writer = TextWriter()
    for text in ODD:
        writer.append(text)
    assert writer.finish() == ODD and type(writer.finish()) is list


def test_a_writer_of_large_texts(cache):
    writer = TextWriter()
    many = [f"{text}{i}" for i in range(3_000) for text in ODD]
    for text in many:
        writer.append(text)
    assert len(writer) == len(many)
    texts = writer.finish()
    assert isinstance(texts, Texts) and texts == many and len(entries()) == 1
    assert texts.take(np.arange(len(many))[::-7]) == many[::-7]
    assert texts == Texts.of(many) and len(entries()) == 1  # the same data is there once


def test_several_texts_share_their_bytes(cache):
    texts = Texts.of(ODD)
    both = texts[:5] + texts[5:]
    assert both == ODD and len(both._packs) == 1


def test_a_process_gets_the_place_not_the_texts(cache):
    texts = Texts.of([f"text {i}" for i in range(100_000)])
    packed = pickle.dumps(texts[10:])
    assert len(packed) < 1_000
    code = "import sys, pickle; texts = pickle.load(sys.stdin.buffer); print(len(texts), texts[0], texts[-1])"
    done = subprocess.run([sys.executable, "-c", code], input=packed, capture_output=True, check=True, timeout=60)
    assert done.stdout.split(b"\n")[0] == b"99990 text 10 text 99999"
    del texts
    gc.collect()
    clear_cache("mapped")
    with pytest.raises(DataError, match="gone or damaged"):
        pickle.loads(packed)


def test_what_is_in_use_stays(cache, monkeypatch):
    texts = Texts.of(ODD)
    (folder,) = entries()
    os.utime(folder, (0, 0))
    monkeypatch.setenv("MEGALABEL_CACHE_LIMIT", "0")
    trim_cache()
    assert clear_cache("mapped") == (0, 0) and folder.exists()
    part = texts[2:3]
    del texts
    gc.collect()
    assert clear_cache("mapped") == (0, 0) and part == ["grün"]
    del part
    gc.collect()
    trim_cache()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["bytes.bin", "starts.bin", "card.json"])
def test_a_damaged_folder_is_written_again(cache, name, capsys):
    Texts.of(ODD)
    gc.collect()
    (folder,) = entries()
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    assert Texts.of(ODD) == ODD
    assert "damaged" in capsys.readouterr().err
    assert Texts.of(ODD) == ODD and entries() == [folder]
    assert "damaged" not in capsys.readouterr().err


def test_without_a_cache_texts_stay_in_memory(cache, monkeypatch, capsys):
    (cache / "file").write_text("")
    monkeypatch.setenv("MEGALABEL_CACHE", str(cache / "file"))
    assert Texts.of(ODD) == ODD
    assert "stays in memory" in capsys.readouterr().err


@pytest.mark.parametrize("good", [0, 1, 2, 3, 5, 8])
def test_a_disk_that_is_full(cache, monkeypatch, capsys, good):
    """Whenever it happens, nothing is lost, and nothing stays in the cache."""
    real, left = arrays._File.write, [good]

    def write(self, piece):
        left[0] -= 1
        if left[0] < 0:
            self.raw.write(piece.tobytes()[:1])
            raise OSError(28, "No space left on device")
        real(self, piece)

    monkeypatch.setattr(arrays._File, "write", write)
    many = ODD * 2_000
    texts = Texts.of(many)
    assert texts == many
    assert ("no space" in capsys.readouterr().err.lower()) == (left[0] < 0)
    assert not list((cache / "mapped").glob(".*")) and (left[0] >= 0 or not entries())


def test_a_reader_that_fails_leaves_nothing(cache):
    writer = TextWriter()
    writer.append("x")
    assert list((cache / "mapped").glob(".*"))
    del writer
    gc.collect()
    assert not list((cache / "mapped").glob("*"))


def test_a_wrong_limit(monkeypatch):
    monkeypatch.setenv("MEGALABEL_MAP_ABOVE", "much")
    with pytest.raises(SettingError, match="MEGALABEL_MAP_ABOVE is 'much'"):
        Texts.of([])


@given(ANY, ANY)
def test_equal_texts_are_found(texts, wanted):
    table = {text: place for place, text in enumerate(texts)}
    assert find_texts(wanted, texts).tolist() == [table.get(text, -1) for text in wanted]
    assert first_equal(texts).tolist() == [texts.index(text) for text in texts]


def test_equal_hashes_of_different_texts(monkeypatch):
    monkeypatch.setattr("megalabel.data.texts._hashes", lambda texts: np.array([len(text) for text in texts]))
    texts = ["a", "b", "aa", "a", "b", "c", "c"]
    assert first_equal(texts).tolist() == [0, 1, 2, 0, 1, 5, 5]
    assert find_texts(["b", "c", "d", "aa"], texts).tolist() == [4, 6, -1, 2]


def test_processes_that_read_the_same_share_one_folder(cache):
    code = (
        "from megalabel.data.texts import Texts; import sys;"
        "texts = Texts.of(f'text {i}' for i in range(50_000)); print(texts.pack().folder.name, texts[-1], flush=True);"
        "sys.stdin.read(); assert texts[0] == 'text 0'"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    lines = [process.stdout.readline() for process in started]
    assert clear_cache("mapped") == (0, 0)  # all three hold it
    assert [process.communicate("")[0] for process in started] == [""] * 3
    assert [process.returncode for process in started] == [0] * 3
    assert len(set(lines)) == 1 and lines[0].endswith(" text 49999\n")
    assert [entry.name for entry in entries()] == [lines[0].split()[0]]
