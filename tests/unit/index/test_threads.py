"""Rows are processed in threads, each exactly once."""

import threading

import pytest
import torch

from megalabel.index._threads import row_threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 333])
def test_every_row_once(rows, two_threads):
    done = []
    with row_threads(rows) as spread:
        spread(lambda first, last: done.extend(range(first, last)), rows)
    assert sorted(done) == list(range(rows))


def test_an_error_in_a_thread_is_raised(two_threads):
    def fail(first, last):
        raise ValueError(threading.current_thread().name)

    with row_threads(64) as spread, pytest.raises(ValueError, match="ThreadPool"):
        spread(fail, 64)
