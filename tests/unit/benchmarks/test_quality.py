"""The benchmark against other systems: what is skipped, what is kept, how rankings are cut; no peer is installed."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
quality = import_module("quality")
environments = import_module("_peers.environment")
features = import_module("_peers.features")
handover = import_module("_peers.handover")
rows = import_module("_rows")
sys.path.remove(str(ROOT / "benchmarks"))


def row(system="XR-Linear", seed=0, digest="a", **more):
    return {"system": system, "data": "set", "seed": seed, "digest": digest, **more}


def test_existing_rows_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "RESULTS", tmp_path)
    options = quality.arguments(["--data", "set", "--systems", "XR-Linear", "fastText", "--seed", "0", "1"])
    names = [(system.name, seed) for system, seed in quality.missing_rows("set", options)]
    assert names == [("XR-Linear", 0), ("fastText", 0), ("XR-Linear", 1), ("fastText", 1)]
    linear = next(system for system in quality.SYSTEMS if system.name == "XR-Linear")
    quality.keep(quality.result_path("set"), row(digest=linear.digest()))
    quality.keep(quality.result_path("set"), row(system="fastText", seed=1, digest="other settings"))
    names = [(system.name, seed) for system, seed in quality.missing_rows("set", options)]
    assert names == [("fastText", 0), ("XR-Linear", 1), ("fastText", 1)]
    options.again = True
    assert len(list(quality.missing_rows("set", options))) == 4


def test_unknown_recipe_is_named_and_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quality, "RESULTS", tmp_path)
    monkeypatch.setattr(quality, "SYSTEMS", (quality.Ours("no-such-recipe", "flagship"), quality.Ours("unidec-cpu")))
    options = quality.arguments(["--data", "set"])
    assert [(system.name, seed) for system, seed in quality.missing_rows("set", options)] == [("unidec-cpu", 0)]
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert said[0].startswith("no-such-recipe is left out: there is no recipe 'no-such-recipe'")


def test_long_rows_run_only_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "RESULTS", tmp_path)
    long = "auto with MiniLM, no refit"
    names = [system.name for system, _ in quality.missing_rows("set", quality.arguments(["--data", "set"]))]
    assert names == [system.name for system in quality.SYSTEMS if not system.asked]
    assert long not in names
    actual = quality.missing_rows("set", quality.arguments(["--data", "set", "--systems", long]))
    assert [system.settings()["recipe"] for system, _ in actual] == ["auto"]


def test_keep_replaces_other_settings_and_the_same_seed(tmp_path):
    path = tmp_path / "deep" / "set.json"
    for actual in (row(seed=0), row(seed=1), row("omikuji Parabel"), row(seed=1, value=2)):
        quality.keep(path, actual)
    assert [(r["system"], r["seed"], r.get("value")) for r in quality.load(path)] == [
        ("XR-Linear", 0, None),
        ("omikuji Parabel", 0, None),
        ("XR-Linear", 1, 2),
    ]
    quality.keep(path, row(seed=2, digest="b"))
    assert [(r["system"], r["seed"]) for r in quality.load(path)] == [("omikuji Parabel", 0), ("XR-Linear", 2)]
    assert [row["system"] for row in json.loads(path.read_text())] == ["omikuji Parabel", "XR-Linear"]
    assert list(path.parent.iterdir()) == [path]


def test_names_and_settings_of_systems_differ():
    names = [system.name for system in quality.SYSTEMS]
    assert len(set(names)) == len(names)
    assert {system.role for system in quality.SYSTEMS} == {"flagship", "ours", "peer"}
    peers = [system for system in quality.SYSTEMS if isinstance(system, quality.Peer)]
    assert len({peer.digest() for peer in peers}) == len(peers)
    for peer in peers:
        assert (quality.SCRIPTS / f"{peer.script}.py").is_file()
        assert any("==" in package for package in (*peer.packages, *peer.alone))
        assert json.loads(json.dumps(peer.settings())) == peer.settings()


def test_a_row_has_all_fields(monkeypatch, tmp_path):
    costs = dict.fromkeys(("fit_seconds", "predict_seconds", "peak_mb", "parameters"), 1)
    measured = {**dict.fromkeys(quality.METRICS, 50.0), **costs, "versions": {}}
    monkeypatch.setattr(quality, "run_peer", lambda *_: measured)
    peer = next(system for system in quality.SYSTEMS if system.role == "peer")
    actual = quality.run_row(peer, "some/set", 3, quality.arguments(["--data", "set", "--threads", "2"]), tmp_path)
    wanted = {"system", "role", "data", "seed", "threads", "settings", "versions", "date", "commit", *quality.METRICS}
    assert wanted | set(costs) <= set(actual)
    assert (actual["data"], actual["seed"], actual["threads"], actual["role"]) == ("set", 3, 2, "peer")


def test_a_peer_that_cannot_be_installed_gives_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    errors = subprocess.CalledProcessError(1, ["pip"], stderr="much\n\nERROR: no such package\n")
    monkeypatch.setattr(environments, "_run", lambda command: (_ for _ in ()).throw(errors))
    with pytest.raises(environments.NoEnvironment, match=r"^nothing cannot be installed: ERROR: no such package$"):
        environments.environment("nothing", ["nothing==1"])
    assert environments.home() == tmp_path / "megalabel" / "peers"


def test_an_environment_is_created_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    commands = []

    def pretend(command):
        commands.append(command)
        if "venv" in command:
            (Path(command[-1]) / "bin").mkdir(parents=True)
            (Path(command[-1]) / "bin" / "python").touch()

    monkeypatch.setattr(environments, "_run", pretend)
    for _ in range(2):
        python = environments.environment("peer", ["numpy==1.26.4"], ["peer==1"])
    assert python == tmp_path / "megalabel" / "peers" / "peer" / "bin" / "python"
    assert [command[-1] for command in commands] == [str(python.parents[1]), "numpy==1.26.4", "peer==1"]
    assert "--no-deps" in commands[2]
    assert "--no-deps" not in commands[1]
    environments.environment("peer", ["numpy==1.26.4"], ["peer==2"])
    assert len(commands) == 6


def test_filter_pairs_are_removed_before_the_cut(monkeypatch):
    monkeypatch.setattr(quality, "DEPTH", 3)
    ids = np.array([[5, 1, 2, 3], [7, 8, 9, -1]])
    assert quality.cut(ids, np.array([[0, 1]])).tolist() == [[5, 2, 3], [7, 8, 9]]
    assert quality.cut(ids, np.empty((0, 2), dtype=np.int64)).tolist() == [[5, 1, 2], [7, 8, 9]]
    assert quality.cut(ids[:, :2], np.array([[0, 1]])).tolist() == [[5, -1, -1], [7, 8, -1]]


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 8), st.randoms(use_true_random=False))
def test_best_sorts_each_row(queries, labels, k, random):
    dense = np.array([[random.choice([0, 0.5, 1, 2]) for _ in range(labels)] for _ in range(queries)])
    actual = handover.best(sparse.csr_matrix(dense), k)
    for scores, ids in zip(dense, actual, strict=True):
        expected = sorted(np.flatnonzero(scores).tolist(), key=lambda label: (-scores[label], label))[:k]
        assert ids.tolist() == expected + [-1] * (k - len(expected))


def test_padded_cuts_and_fills():
    assert handover.padded([[3, 1, 2], [], [4]], 2).tolist() == [[3, 1], [-1, -1], [4, -1]]


def test_peak_is_that_of_this_process():
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks' / '_peers')!r})\n"
    script += "from handover import peak_mb; print(peak_mb())"
    big = np.ones(40_000_000)  # 320 MB in the parent must not count for the child
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert len(big)
    assert 5 < float(done.stdout) < 200


def test_features_are_matrices_of_unit_rows(tmp_path):
    wanted = {"kind": "words+characters"}
    took = features.make({"data": "synthetic:points=200,labels=20", "features": wanted}, tmp_path)
    train, test, targets = (sparse.load_npz(tmp_path / f"{name}.npz") for name in ("train", "test", "targets"))
    assert train.shape[0] == targets.shape[0]
    assert train.shape[1] == test.shape[1]
    lengths = np.sqrt(train.multiply(train).sum(axis=1)).A1
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-5)
    assert set(took) == {"train_seconds", "train_cpu_seconds", "test_seconds"}


def test_gandalf_adds_a_row_per_label(tmp_path):
    wanted = {"kind": "words", "gandalf": {"delta": 0.1}}
    plain, more = tmp_path / "plain", tmp_path / "more"
    for folder, given_ in ((plain, {"kind": "words"}), (more, wanted)):
        folder.mkdir()
        features.make({"data": "synthetic:points=200,labels=20", "features": given_}, folder)
    before, after = (sparse.load_npz(folder / "targets.npz") for folder in (plain, more))
    assert after.shape[0] == before.shape[0] + 20
    assert (after[: before.shape[0]] != before).nnz == 0


def test_texts_are_one_line_each(tmp_path):
    targets = sparse.csr_matrix(np.array([[1, 0, 1], [0, 0, 0]], dtype=np.float32))
    features.write_texts(tmp_path, ["Red\nShoes, new!", ""], targets, ["Ein Öl"])
    assert (tmp_path / "train.txt").read_text() == "__label__0 __label__2 red shoes new\n\n"
    assert (tmp_path / "test.txt").read_text() == "ein öl\n"


def test_a_row_that_fails_or_takes_too_long_says_so():
    with pytest.raises(rows.RowFailed, match=r"(?s)exit code 1.*ValueError: wrong"):
        rows.in_own_process([sys.executable, "-c", "raise ValueError('wrong')"], {})
    with pytest.raises(rows.RowFailed, match=r"stopped after 0\.001 minutes"):
        rows.in_own_process([sys.executable, "-c", "import time; time.sleep(9)"], {}, minutes=0.001)
    echo = "import sys; open(sys.argv[2], 'w').write(sys.argv[1])"
    assert rows.in_own_process([sys.executable, "-c", echo], {"a": 1}) == {"a": 1}
    assert quality.ends("exit code 1\nTraceback\n\nValueError: wrong\n") == ["exit code 1", "ValueError: wrong"]
    assert quality.ends("one line") == ["one line"]
