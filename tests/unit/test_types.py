"""Tokens: ragged gather, joining, and each text once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from megalabel.types import Tokens

texts = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=12)


def tokens_of(rows, dtype=np.uint16):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Tokens(np.array([i for row in rows for i in row], dtype=dtype), offsets)


def lists(tokens):
    assert tokens.offsets[0] == 0 and tokens.offsets[-1] == len(tokens.ids)
    return [tokens[i].tolist() for i in range(len(tokens))]


@given(texts, st.data())
def test_take_equals_a_loop(rows, data):
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    length = data.draw(st.none() | st.integers(0, 5))
    taken = tokens_of(rows).take(wanted, length)
    assert lists(taken) == [rows[i][:length] for i in wanted]
    assert taken.ids.dtype == np.uint16


@given(texts)
def test_unique_equals_a_loop(rows):
    few, inverse = tokens_of(rows).unique()
    assert lists(few) == [list(row) for row in dict.fromkeys(map(tuple, rows))]
    assert [lists(few)[i] for i in inverse] == rows


@given(texts, texts)
def test_joining_equals_lists(first, second):
    assert lists(tokens_of(first) + tokens_of(second)) == first + second


def test_unique_is_exact_when_hashes_meet(monkeypatch):
    rows = [[1, 2], [3], [1, 2], [], [3]]
    monkeypatch.setattr(np, "cumprod", lambda powers: np.zeros_like(powers))  # every text gets the same hash
    few, inverse = tokens_of(rows).unique()
    assert lists(few) == [[1, 2], [3], []]
    assert inverse.tolist() == [0, 1, 0, 2, 1]


def test_mapped_ids_are_read_where_they_lie(tmp_path):
    (tmp_path / "ids").write_bytes(np.arange(6, dtype=np.uint16).tobytes())
    (tmp_path / "offsets").write_bytes(np.array([0, 2, 2, 6], dtype=np.int64).tobytes())
    mapped = Tokens(
        np.memmap(tmp_path / "ids", dtype=np.uint16, mode="r"),
        np.memmap(tmp_path / "offsets", dtype=np.int64, mode="r"),
    )
    assert lists(mapped.take([2, 0])) == [[2, 3, 4, 5], [0, 1]]
    assert type(mapped.take([2, 0]).ids) is np.ndarray
    few, inverse = mapped.unique()
    assert lists(few) == lists(mapped) and inverse.tolist() == [0, 1, 2]
