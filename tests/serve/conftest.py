"""Real servers: the command in a process of its own, or the same app and protocol on a port in a thread."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

import megalabel as ml
from megalabel.serve.app import create_app
from megalabel.serve.bind import bind
from megalabel.serve.protocol import Connection
from megalabel.serve.settings import Settings

FUSED = [
    "ngrams={words: 1024, bigrams: 1024, characters: 0}",
    "fitted={near: {kind: memory, labels: self}, linear: {kind: linear}, named: {kind: overlap, side: label}}",
    "predict={weights: fusion, candidates: 20}",
]


@pytest.fixture(scope="session")
def data():
    return ml.load("synthetic:points=400,labels=60,seed=5")


@pytest.fixture(scope="session")
def run(data, small, tmp_path_factory):
    """A fused model, not to be changed."""
    folder = tmp_path_factory.mktemp("fused") / "run"
    ml.train("unidec-cpu", data, folder, changes=[*small, *FUSED])
    return folder


@pytest.fixture(scope="session")
def summed_run(data, small, tmp_path_factory):
    """A model that adds scores."""
    folder = tmp_path_factory.mktemp("summed") / "run"
    ml.train("unidec-cpu", data, folder, changes=small)
    return folder


@pytest.fixture
def model(run):
    return ml.Model.load(run)


@contextmanager
def running(model, **settings):
    """Serve on a free port, in a thread; give a client."""
    settings = Settings(**settings)
    place = bind("127.0.0.1", 0)
    app = create_app(model, settings)
    server = uvicorn.Server(
        uvicorn.Config(app, http=Connection.of(settings), ws="none", lifespan="on", log_config=None, access_log=False)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        port = place.getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            client.port, client.engine, client.app = port, app.state.engine, app
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def serving():
    return running


@pytest.fixture(scope="module")
def client(run):
    """A server with a model of its own, for all tests of a file."""
    with running(ml.Model.load(run)) as found:
        yield found


class Process:
    """The command `megalabel serve`, started and ready."""

    def __init__(self, run, *options, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "megalabel", "serve", str(run), "--port", "0", *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip
        self.line = self.process.stdout.readline()
        assert "http://" in self.line, self.process.communicate()
        self.url = next(word for word in self.line.split() if word.startswith("http://")).rstrip("/")
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def stop(self, how=signal.SIGTERM):
        """Ask it to stop; return exit code, standard output and standard error."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start():
    """Start servers as processes; they are stopped at the end."""
    started = []

    def start(run, *options, **environment):
        started.append(Process(run, *options, **environment))
        return started[-1]

    yield start
    for one in started:
        one.client.close()
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
