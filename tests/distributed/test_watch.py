"""Ranks notice who is gone, and how: with a last word, without one, or not at all."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from megalabel.errors import LostRankError, SettingError
from megalabel.training.distributed import watch
from megalabel.training.distributed.watch import Watch

LONGEST = 60.0


class Store:
    """A store of one process."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, LONGEST)
            return self.values[key]


@pytest.fixture
def started(monkeypatch):
    """Three ranks that watch each other; what would end the process is written down instead."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    ended = []
    monkeypatch.setattr(Watch, "_end", lambda rank: ended.append(rank.rank))
    monkeypatch.setattr(watch, "_SOON", 0.2)
    ranks, store = [Watch(rank, 3, rank, "start again") for rank in range(3)], Store()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda rank: rank.start(store, LONGEST, wakes=False), ranks))
    yield ranks, ended
    for rank in reversed(ranks):
        if not rank._closed.is_set():
            rank.close(good=False, patience=0.0)


def wait_for(check):
    end = time.monotonic() + LONGEST
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_all_leave_in_peace(started):
    ranks, ended = started
    for rank in reversed(ranks):  # rank 0 last
        rank.close(good=True, patience=LONGEST)
    assert ended == [] and [rank.error for rank in ranks] == [None] * 3


def test_rank_0_waits_for_the_others(started):
    ranks, ended = started
    last = threading.Timer(0.3, lambda: ranks[2].close(good=True, patience=0.0))
    ranks[1].close(good=True, patience=0.0)
    last.start()
    begin = time.monotonic()
    ranks[0].close(good=True, patience=LONGEST)
    assert 0.2 < time.monotonic() - begin < LONGEST / 2
    last.join()
    assert ended == []


def test_a_process_that_ends(started):
    ranks, ended = started
    next(iter(ranks[2]._others)).shutdown(socket.SHUT_WR)  # as the system does for one that is killed
    wait_for(lambda: 0 in ended)
    assert str(ranks[0].error) == "rank 0 of 3 lost rank 2, whose process has ended; start again"
    assert ranks[0].speaks and not ranks[0].cut_off
    assert ranks[1].error is None


def test_a_rank_that_stops_with_an_error_has_said_why(started):
    ranks, ended = started
    ranks[1].close(good=False, patience=0.0)
    wait_for(lambda: ended == [0])
    assert ranks[0].told and not ranks[0].speaks
    ranks[0].close(good=False, patience=0.0)
    wait_for(lambda: ended == [0, 2])
    assert ranks[2].told and not ranks[2].speaks


def test_one_rank_of_a_machine_speaks():
    ranks = [Watch(rank, 8, rank % 4, "start again") for rank in range(8)]
    assert [rank.rank for rank in ranks if rank.speaks] == [0, 1, 4]  # rank 0 may be the one that is lost


def test_strangers_are_sent_away(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    ranks, store = [Watch(rank, 2, rank, "start again") for rank in range(2)], Store()
    first = threading.Thread(target=ranks[0].start, args=(store, LONGEST), kwargs={"wakes": False})
    first.start()
    where = json.loads(store.get("watch"))
    for said in (b"x" * 32 + b"00000001", where["token"].encode() + b"00000000", where["token"].encode() + b"none    "):
        with socket.create_connection((where["host"], where["port"]), LONGEST) as stranger:
            stranger.sendall(said)
            assert stranger.recv(1) == b""
    ranks[1].start(store, LONGEST, wakes=False)
    first.join()
    assert list(ranks[0]._others.values()) == [1]
    for rank in reversed(ranks):
        rank.close(good=True, patience=LONGEST)


def test_a_rank_that_never_comes(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(LostRankError, match=r"rank 1 of 2 has not connected within 0\.1 s"):
        Watch(0, 2, 0, "start again").start(Store(), 0.1, wakes=False)


def test_those_who_came_hear_that_another_did_not(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setattr(Watch, "_end", lambda rank: None)
    ranks, store = [Watch(rank, 3, rank, "start again") for rank in range(2)], Store()
    came = threading.Thread(target=ranks[1].start, args=(store, LONGEST), kwargs={"wakes": False})
    came.start()
    with pytest.raises(LostRankError, match="rank 2 of 3 has not connected"):
        ranks[0].start(store, 0.5, wakes=False)
    came.join()
    ranks[0].close(good=False, patience=0.0)
    wait_for(lambda: ranks[1].told)
    ranks[1].close(good=False, patience=0.0)


def test_ranks_on_one_machine_meet_where_nobody_else_can(monkeypatch):
    made, plain = [], socket.create_server
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setattr(socket, "create_server", lambda where, **more: made.append(where) or plain(where, **more))
    ranks, store = [Watch(rank, 2, rank, "start again") for rank in range(2)], Store()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: rank.start(store, LONGEST, wakes=False), ranks))
        list(pool.map(lambda rank: rank.close(good=True, patience=LONGEST), ranks))
    assert made == [("127.0.0.1", 0)]


def test_rank_0_behind_a_firewall():
    store = Store()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    store.set("watch", json.dumps({"host": "127.0.0.1", "port": port, "token": "0" * 32}))
    with pytest.raises(SettingError, match=rf"rank 1 of 2 cannot connect to rank 0 at 127\.0\.0\.1:{port}"):
        Watch(1, 2, 1, "start again").start(store, 5.0, wakes=False)


def test_the_address_is_that_which_others_see(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert watch._own_address() == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "no.such.machine.invalid")
    assert watch._own_address() == "no.such.machine.invalid"


STUCK = """
import ctypes, signal, threading
from megalabel.training.distributed import watch
from test_watch import Store

signal.signal(signal.SIGTERM, signal.SIG_IGN)
watch._PATIENCE = watch._SOON = 0.2
ranks, store = [watch.Watch(rank, 2, rank, "start again") for rank in range(2)], Store()
ranks[1]._gone = lambda other: None
other = threading.Thread(target=ranks[1].start, args=(store, 60.0), kwargs={"wakes": False})
other.start()
ranks[0].start(store, 60.0, wakes=True)
other.join()
next(iter(ranks[1]._others)).shutdown(1)
while True:
    ctypes.CDLL(None).sleep(60)
"""


def test_a_main_thread_that_does_not_wake():
    """It is stuck in a library, where no exception reaches it: the process ends with the line all the same."""
    folders = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=LONGEST,
        env={**os.environ, "MASTER_ADDR": "127.0.0.1", "PYTHONPATH": folders},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "megalabel: rank 0 of 2 lost rank 1, whose process has ended; start again\n"
