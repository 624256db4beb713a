"""Real servers: the command in a process, or the same app and protocol on a port in a thread."""

import os
import resource
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
from megalabel.serve.connection import Connection
from megalabel.serve.server import bind
from megalabel.serve.settings import Settings


@pytest.fixture(scope="session")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture(scope="session")
def run(fused_run):
    """A run folder with a fused model; copy it before changing it."""
    return fused_run


@pytest.fixture
def model(run):
    return ml.Model.load(run)


@contextmanager
def running(model, **settings):
    """Serve on a free port, in a thread; yield a client."""
    settings = Settings(**settings)
    listener = bind("127.0.0.1", 0)
    app = create_app(model, settings)
    server = uvicorn.Server(
        uvicorn.Config(
            app, http=Connection.with_settings(settings), ws="none", lifespan="on", log_config=None, access_log=False
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        port = listener.getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            client.port, client.engine, client.app, client.server = port, app.state.engine, app, server
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def serving():
    return running


@pytest.fixture(scope="module")
def client(run):
    """A server with its own copy of the model, shared by the tests of a file."""
    with running(ml.Model.load(run)) as client:
        yield client


class Process:
    """A running `megalabel serve`."""

    def __init__(self, run, *options, files=None, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "megalabel", "serve", str(run), "--port", "0", *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment,
            preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))),
        )  # fmt: skip
        self.line = self.process.stdout.readline()
        assert "http://" in self.line, self.process.communicate()
        self.url = next(word for word in self.line.split() if word.startswith("http://")).rstrip("/")
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def stop(self, number=signal.SIGTERM):
        """Send a signal; return exit code, standard output and standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start():
    """Start servers as processes; they are stopped after the test."""
    started = []

    def start(run, *options, files=None, **environment):
        """Start a server; ``files`` limits how many files it may open."""
        started.append(Process(run, *options, files=files, **environment))
        return started[-1]

    yield start
    for server in started:
        server.client.close()
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()
