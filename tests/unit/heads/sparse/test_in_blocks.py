"""Blocks keep their order, and errors are raised."""

from threading import get_ident

import pytest
import torch

from megalabel.heads.sparse.in_blocks import in_blocks


@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_come_back_in_order(monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert in_blocks(lambda start, stop: (start, stop), 7, 3, "working") == [(0, 3), (3, 6), (6, 7)]
    assert in_blocks(lambda start, stop: (start, stop), 0, 3, "working") == []


def test_an_error_in_a_block_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_blocks(lambda start, stop: 1 // (start - 4), 10, 2, "working")


def test_a_single_block_starts_no_thread():
    assert in_blocks(lambda start, stop: (start, stop, get_ident()), 3, 3, "working") == [(0, 3, get_ident())]
