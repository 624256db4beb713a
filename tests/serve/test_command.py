"""`megalabel serve` as a user runs it."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import megalabel as ml
from megalabel.__main__ import main
from megalabel.errors import WriteError
from megalabel.model.changing import changing
from megalabel.model.journal import JOURNAL
from megalabel.model.store import read_labels


@pytest.fixture
def command(capsys):
    """Run the command until it exits; return exit code, standard output and standard error."""

    def command(*arguments):
        code = main(["serve", *map(str, arguments)])
        return (code, *capsys.readouterr())

    return command


def test_help(command):
    code, out, _ = command("--help")
    assert code == 0
    for word in ("--host", "--port", "--save", "--read-only", "--api-key-file", "--allow-host", "--max-texts"):
        assert word in out
    assert "Example" in out
    assert "--unbatched" not in out


def test_it_prints_its_address_and_finishes_open_requests(start, run):
    server = start(run)
    assert server.line.startswith(f"serving {run} (60 labels): http://127.0.0.1:")
    assert "/docs" in server.line
    assert server.client.post("/labels", json={"texts": ["a label that lives in memory"]}).status_code == 201
    answers = []
    body = {"texts": [f"text number {index}" for index in range(1000)], "k": 60, "details": True}
    threads = [
        threading.Thread(target=lambda: answers.append(server.client.post("/predict", json=body))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_for(server, "megalabel_queue_texts 3000")
    code, out, err = server.stop(signal.SIGINT)
    for thread in threads:
        thread.join()
    assert (code, out, err) == (0, "", "")
    assert [(answer.status_code, len(answer.json()["predictions"])) for answer in answers] == [(200, 1000)] * 3
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
    assert ml.Model.load(run).state.alive == 60


def test_changed_labels_are_saved(start, run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    server = start(folder, "--save", MEGALABEL_API_KEY="sesame")
    assert server.client.get("/model").status_code == 401
    server.client.headers["Authorization"] = "Bearer sesame"
    with pytest.raises(WriteError, match="another process"), changing(folder / "model", patience=0.1):
        pass
    uids = [server.client.post("/labels", json={"texts": [f"label {n}"]}).json()["labels"][0]["uid"] for n in range(5)]
    wait_for(server, 'megalabel_saves_total{done="yes"} ')
    assert server.client.delete(f"/labels/{uids[0]}").status_code == 200  # saved on exit at the latest
    assert server.stop() == (0, "", "")
    saved = ml.Model.load(folder)
    assert (saved.labels.uids[-5:], saved.state.alive) == (uids, 64)


def test_a_failed_save_is_reported(start, run, tmp_path):
    folder, key = tmp_path / "run", tmp_path / "key"
    shutil.copytree(run, folder)
    key.write_text("sesame\n")
    server = start(folder, "--save", "--api-key-file", key)
    headers = {"X-API-Key": "sesame"}
    assert server.client.post("/labels", json={"texts": ["a label"]}).status_code == 401
    assert server.client.post("/labels", json={"texts": ["a label"]}, headers=headers).status_code == 201
    shutil.rmtree(folder / "model")
    (folder / "model").write_text("a file in the way")
    refused = server.client.post("/labels", json={"texts": ["another"]}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "not_saved")
    assert server.client.get("/model", headers=headers).json()["labels"] == 61
    code, _, err = server.stop()
    assert code == 2
    assert "a file of this name exists" in err and "label changes lost, because another program removed" in err
    assert "Traceback" not in err


def saved_uids(folder):
    return [row["uid"] for row in read_labels(folder)]


def add(server, count):
    """Add labels one by one; return the uids of those that were acknowledged."""
    answers = [server.client.post("/labels", json={"texts": [f"label {number}"]}) for number in range(count)]
    assert {answer.status_code for answer in answers} == {201}
    return [answer.json()["labels"][0]["uid"] for answer in answers]


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def test_a_change_costs_kilobytes(start, copy):
    server = start(copy, "--save")
    before = {path: path.stat().st_ino for path in (copy / "model").rglob("*")}
    add(server, 10)
    assert {path: path.stat().st_ino for path in (copy / "model").rglob("*")} == before
    assert (copy / "model" / JOURNAL).stat().st_size < 10 * 500


def test_what_was_acknowledged_outlives_a_kill(start, copy):
    uids = []
    for _ in range(3):
        server = start(copy, "--save")
        uids += add(server, 5)
        server.process.kill()
        server.process.wait()
        assert saved_uids(copy)[-len(uids) :] == uids
    model = ml.Model.load(copy)
    assert model.labels.uids[-15:] == uids
    assert [path.name for path in copy.glob(".*")] == [".model.lock"]


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_two_interrupts_lose_nothing(start, copy, pause):
    server = start(copy, "--save")
    uids = add(server, 5)
    server.process.send_signal(signal.SIGINT)
    time.sleep(pause)
    code, out, err = server.stop(signal.SIGINT)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert saved_uids(copy)[-5:] == uids
    assert "label changes in" in err or not (copy / "model" / JOURNAL).stat().st_size


def test_a_second_server_or_command_is_told_who_holds_the_model(start, copy, monkeypatch, capsys):
    server = start(copy, "--save")
    monkeypatch.setattr("megalabel.model.changing._PATIENCE", 0.1)
    assert main(["labels", "add", str(copy), "--text", "mine"]) == 2
    error = capsys.readouterr().err
    assert f"another process is changing this model (process {server.process.pid} since " in error
    assert len(error.splitlines()) == 1


def test_a_full_disk_is_an_honest_answer(run, serving, tmp_path, monkeypatch):
    shutil.copytree(run / "model", tmp_path / "model")
    monkeypatch.setattr("megalabel.serve.saver.RETRY", 0.2)
    monkeypatch.setattr("megalabel.serve.saver.PERIOD", 0.2)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with serving(ml.Model.load(tmp_path / "model"), save=tmp_path / "model") as client:
        assert client.post("/labels", json={"texts": ["first"], "uids": ["first"]}).status_code == 201
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            answer = client.post("/labels", json={"texts": ["second"], "uids": ["second"]})
            assert answer.status_code == 507
            assert answer.headers["Retry-After"]
            assert "no space left on device; nothing was changed" in answer.json()["error"]["message"]
            assert client.get("/labels", params={"find": "second"}).json()["total"] == 0
            deadline = time.monotonic() + 30
            while client.engine.metrics.value("megalabel_saves_total", done="no") < 2:  # in the background
                assert time.monotonic() < deadline
                time.sleep(0.05)
        while client.engine.journal.pending:  # tried again by itself
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.post("/labels", json={"texts": ["second"], "uids": ["second"]}).status_code == 201
    assert saved_uids(tmp_path / "model")[-2:] == ["first", "second"]


def test_a_public_server_without_a_key_prints_a_warning(start, run):
    server = start(run, "--host", "0.0.0.0", "--log-requests")
    url = f"http://127.0.0.1:{server.url.rsplit(':', 1)[1]}"
    assert server.client.get(f"{url}/model").status_code == 200
    assert server.client.get(f"{url}/model", headers={"Host": "evil.example"}).status_code == 403
    code, _, err = server.stop()
    assert code == 0
    first, *rest = err.splitlines()
    assert first.startswith("anyone who can reach 0.0.0.0 can use this server")
    assert "GET '/model' 200" in rest[0]


def wait_for(server, prefix):
    """Wait until a line of the metrics starts with a prefix and its value is above 0."""
    deadline = time.monotonic() + 60
    while True:
        lines = server.client.get("/metrics").text.splitlines()
        if any(line.startswith(prefix) and float(line.split()[-1]) > 0 for line in lines):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no model here"),
        (["RUN", "--port", "70000"], "--port"),
        (["RUN", "--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
        (["RUN", "--save", "--read-only"], "omit --save or --read-only"),
        (["RUN", "--timeout", "0"], "--timeout"),
        (["RUN", "--max-texts", "0"], "--max-texts"),
        (["RUN", "--api-key-file", "nowhere"], "cannot read the API key file"),
        (["RUN", "--tail", "2"], "tail must lie in 0 to 1"),
    ],
)
def test_invalid_arguments_print_one_line(command, run, arguments, message):
    code, out, err = command(*(run if word == "RUN" else word for word in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_port_in_use(command, run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = command(run, "--port", port)
    assert (code, out) == (2, "")
    assert err == (
        f"megalabel: cannot listen on 127.0.0.1 port {port}: address already in use; "
        "choose another --port, or 0 for any free one\n"
    )


def test_a_missing_extra(command, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)  # cannot be imported
    code, out, err = command(run)
    assert (code, out) == (2, "")
    assert err == "megalabel: the server needs the package fastapi; pip install 'megalabel[serve]'\n"


def test_an_invalid_host_is_reported_before_torch_is_loaded(run):
    code = "import sys; from megalabel.__main__ import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    arguments = ["serve", str(run), "--host", "no.such.host.invalid"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.stdout == "2 False\n"


def test_more_connections_than_open_files(start, run):
    """Connections beyond the limit wait or are refused; the log says so in a line, and requests are answered again."""
    server = start(run, files=100)
    port = int(server.url.rsplit(":", 1)[1])
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(150)]
    time.sleep(0.5)
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + 30
    while server.client.get("/health").status_code == 429:  # those that waited come first
        assert time.monotonic() < deadline
    assert server.client.post("/labels", json={"texts": ["a label"]}).status_code == 201
    code, _, err = server.stop()
    assert code == 0
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


def test_connections_are_limited(run, serving):
    with serving(ml.Model.load(run), connections=5) as client:
        held = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(5)]
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as refused:
            assert b"HTTP/1.1 429 Too Many Requests" in refused.recv(1000)
        for connection in held:
            connection.close()
        deadline = time.monotonic() + 10
        while client.get("/health").status_code != 200:
            assert time.monotonic() < deadline
