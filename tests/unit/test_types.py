"""Tokens: ragged gather, joining, and each text once. Batches: views that move together."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from megalabel.types import LABELS, Batch, Targets, Tokens, View

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


@given(texts, st.data())
def test_cut_equals_a_slice(rows, data):
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    tokens = tokens_of(rows)
    assert lists(tokens.cut(start, stop)) == rows[start:stop]
    assert np.shares_memory(tokens.cut(start, stop).ids, tokens.ids) or not sum(map(len, rows[start:stop]))


@given(texts)
def test_unique_equals_a_loop(rows):
    few, inverse = tokens_of(rows).unique()
    assert lists(few) == [list(row) for row in dict.fromkeys(map(tuple, rows))]
    assert [lists(few)[i] for i in inverse] == rows


@given(texts, texts)
def test_joining_equals_lists(first, second):
    assert lists(tokens_of(first) + tokens_of(second)) == first + second


def test_unique_is_exact_despite_hash_collisions(monkeypatch):
    rows = [[1, 2], [3], [1, 2], [], [3]]
    monkeypatch.setattr(np, "cumprod", lambda powers: np.zeros_like(powers))  # every text gets the same hash
    few, inverse = tokens_of(rows).unique()
    assert lists(few) == [[1, 2], [3], []]
    assert inverse.tolist() == [0, 1, 0, 2, 1]


def test_mapped_ids_are_not_copied(tmp_path):
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


def test_a_batch_moves_with_all_its_views():
    targets = Targets.from_dense(torch.eye(2))
    labels = View(targets, pool=torch.tensor([3, 5]), mask=torch.ones(2, 2, dtype=torch.bool))
    groups = View(targets, candidates=torch.tensor([[0, 1], [1, -1]]))
    batch = Batch(torch.tensor([7, 8]), {LABELS: labels, "groups": groups})
    assert batch.view is labels
    moved = batch.to("meta")
    assert list(moved.views) == [LABELS, "groups"]
    parts = [moved.queries, moved.view.pool, moved.view.mask, moved.views["groups"].candidates]
    parts += [part for view in moved.views.values() for part in (view.targets.rows, view.targets.values)]
    assert {part.device.type for part in parts} == {"meta"}
    assert moved.view.candidates is moved.views["groups"].pool is None
    assert torch.equal(batch.view.targets.dense(), torch.eye(2))
