"""Whole runs with several ranks: a lost rank stops all, any number of ranks resumes, errors are one line."""

import contextlib
import io
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import megalabel as ml
from megalabel.__main__ import main
from megalabel.data.dataset import Dataset
from megalabel.data.save import save
from megalabel.training.run_log import read_log

LONGEST = 300.0  # seconds; the machine may be busy
DATA = "synthetic:points=150,labels=23,seed=4"
SMALL = [
    "--data", DATA, "--seed", "3", "--no-report",
    "--set", "encoder={kind: bag, source: null, options: {dim: 16, words: 256, bigrams: 0, characters: 0}}",
    "--set", "batching.batch_size=32", "--set", "batching.refresh={start: 1, every: 2}",
]  # fmt: skip
MANY = ["--set", "training.epochs=400", "--set", "training.evaluate_every=20"]


def train(out, *more, recipe="unidec-cpu"):
    return ["train", recipe, *SMALL, "--out", str(out), *map(str, more)]


def weights(folder):
    files = [folder / "model" / "heads.safetensors", folder / "model" / "encoders" / "encoder" / "bag.safetensors"]
    return {name: value for path in files for name, value in load_file(path).items()}


def wait_for_steps(folder, steps):
    log, end = folder / "metrics.jsonl", time.monotonic() + LONGEST
    while not log.is_file() or sum("loss" in row for row in read_log(log)) < steps:
        assert time.monotonic() < end, "the run did not start"
        time.sleep(0.02)


def lines(said):
    """Return what was said for a person to read, without the warnings of others."""
    return [line for line in said.splitlines() if line.startswith("megalabel: ") or "Traceback" in line]


@pytest.mark.extra  # 26 s
def test_killed_and_resumed_by_other_numbers_of_ranks(start_ranks, run_ranks, tmp_path):
    """Three ranks, one of them killed, then two, then one: all end where one alone would."""
    epochs = ["--set", "training.epochs=6"]
    assert main(train(tmp_path / "alone", *epochs)) == 0
    folder = tmp_path / "run"
    ranks = start_ranks(3, "-m", "megalabel", *train(folder, *epochs, "--timeout", 60))
    wait_for_steps(folder, 6)
    os.kill(ranks[2].pid, signal.SIGKILL)
    begin = time.monotonic()
    said = [rank.communicate(timeout=LONGEST)[1] for rank in ranks]
    assert time.monotonic() - begin < 60
    assert [rank.returncode for rank in ranks] == [2, 2, -signal.SIGKILL], said
    spoken = lines("".join(said))
    assert len(spoken) == 1, said
    assert "lost another rank" in spoken[0] and "--resume" in spoken[0]
    assert not (folder / "model").exists()

    ranks = start_ranks(2, "-m", "megalabel", *train(folder, *epochs, "--resume"))
    wait_for_steps(folder, 14)
    for rank in ranks:
        rank.send_signal(signal.SIGINT)
    said = [rank.communicate(timeout=LONGEST)[1] for rank in ranks]
    if not (folder / "model").exists():  # else it was faster than the signal
        assert [rank.returncode for rank in ranks] == [130, 130], said
        prefix = "stopped and saved; continue with: "
        commands = [line.removeprefix(prefix) for line in "".join(said).splitlines() if line.startswith(prefix)]
        assert len(commands) == 1, said
        assert shlex.split(commands[0])[:4] == ["torchrun", "--nproc-per-node=2", "-m", "megalabel"]
    assert main(train(folder, *epochs, "--resume")) == 0

    both = (folder, tmp_path / "alone")
    steps = [[row["step"] for row in read_log(each / "metrics.jsonl") if "loss" in row] for each in both]
    assert steps[0] == steps[1]
    actual, expected = map(weights, both)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, atol=2e-3, rtol=0, msg=lambda m, name=name: f"{name}: {m}")
    data = ml.load(DATA)
    metrics = [ml.Model.load(each).evaluate(data).metrics["P@1"] for each in both]
    assert metrics[0] == pytest.approx(metrics[1], abs=4)


@pytest.mark.extra
def test_negatives_by_bm25_are_found_by_all_ranks_together(run_ranks, tmp_path):
    colours, things = ["red", "blue", "green", "grey"], ["shoe", "hat", "coat", "glove", "scarf", "belt"]
    labels = [f"{colour} {thing}" for colour in colours for thing in things]
    points = [(f"{label} of size {size}", [number]) for size in range(5) for number, label in enumerate(labels)]
    save(Dataset.from_lists(train=points[:-20], test=points[-20:], labels=labels), tmp_path / "data")
    shared = ["training.epochs=1", "batching.order=shuffled", "batching.refresh={}", "batching.batch_size=8"]
    changes = {name: [*shared, f"batching.negatives={{bm25: {count}}}"] for name, count in (("none", 0), ("some", 2))}

    def command(folder, kind):
        options = [part for change in changes[kind] for part in ("--set", change)]
        return [str(tmp_path / "data") if part == DATA else part for part in train(tmp_path / folder, *options)]

    assert main(command("none", "none")) == 0
    assert main(command("alone", "some")) == 0
    run_ranks(2, "-m", "megalabel", *command("both", "some"))
    pools = {
        name: [row["pool_size"] for row in read_log(tmp_path / name / "metrics.jsonl") if "loss" in row]
        for name in ("none", "alone", "both")
    }
    assert pools["alone"] == pools["both"]
    assert sum(pools["alone"]) > sum(pools["none"])
    expected = weights(tmp_path / "alone")
    for name, value in weights(tmp_path / "both").items():
        torch.testing.assert_close(value, expected[name], atol=2e-3, rtol=0)


@pytest.mark.extra
def test_a_rank_that_does_not_respond(start_ranks, tmp_path):
    ranks = start_ranks(2, "-m", "megalabel", *train(tmp_path / "run", *MANY, "--timeout", 10))
    wait_for_steps(tmp_path / "run", 3)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    begin = time.monotonic()
    said = ranks[0].communicate(timeout=LONGEST)[1]
    assert time.monotonic() - begin < 60
    assert ranks[0].returncode == 2
    assert len(lines(said)) == 1
    assert "did not answer within 10 s" in said


@pytest.mark.extra  # 17 s
def test_fitted_heads_stages_and_refit_under_torchrun(tmp_path):
    """The command a user types; one rank fits what is not trained in steps, the others wait."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "megalabel"]
    actual = {}
    once = ["--set", "training.epochs=1", "--set", "batching.refresh={start: 0}"]
    for recipe, more in (("auto", ["--set", "training.epochs=2"]), ("astec-cpu", once)):
        folder = tmp_path / recipe
        made = subprocess.run(
            [*command, *train(folder, *more, recipe=recipe)], capture_output=True, text=True, timeout=LONGEST,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        assert made.stderr.count("2 ranks, each with about 11 labels") == 1
        actual[recipe] = ml.Model.load(folder)
        assert actual[recipe].evaluate(ml.load(DATA)).metrics["P@1"] > 20
    assert "linear" in actual["auto"].heads
    assert actual["auto"].network.head("classifier").table.shape[0] == 23


def test_files_are_predicted_by_several_ranks(start_ranks, run_ranks, tmp_path):
    assert main(train(tmp_path / "run", "--set", "training.epochs=1")) == 0
    texts = [f"{text} {number}" for number in range(20) for text in ml.load(DATA).train.texts]
    (tmp_path / "texts.txt").write_text(
        "\n".join([*texts, "caf\u00e9"]) + "\n"
    )  # more than two blocks, and a short one
    ask = ["predict", str(tmp_path / "run"), "--input", str(tmp_path / "texts.txt"), "-k", "3", "--heads-scores"]
    assert main([*ask, "--out", str(tmp_path / "one.jsonl")]) == 0
    said = run_ranks(2, "-m", "megalabel", *ask, "--out", tmp_path / "two.jsonl")
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert "".join(said).count("wrote the labels of") == 1
    ranks = start_ranks(2, "-m", "megalabel", *ask, "--out", tmp_path / "two.jsonl")
    said = [rank.communicate(timeout=LONGEST)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert len(lines("".join(said))) == 1 and "this file exists" in "".join(said)


def mistakes(folder):
    """Meet every mistake in turn, in one process of two; write down what was said and the exit code."""
    rank = os.environ["RANK"]
    other = ["--set", "training.warmup=0.2"] if rank == "1" else []
    data = ["--data", DATA.replace("seed=4", "seed=5")] if rank == "1" else []
    cases = {
        "recipe": train(folder / "a", *other),
        "data": train(folder / "b", *data),
        "resume": train(folder / "c", *(["--resume"] if rank == "1" else [])),
        "few labels": train(folder / "d", "--data", "synthetic:points=80,labels=1,labels_per_point=1"),
        "device": train(folder / "e", "--device", "cuda"),
        "one device": train(folder / "f", "--device", "cuda:0"),
        "setting": train(folder / "g", "--set", "training.epocs=3"),
        "folder": train(folder / f"h{rank}"),
    }
    for name, arguments in cases.items():
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                code = main(arguments)
            except SystemExit as error:
                code = error.code
        (folder / f"{name} {rank}").write_text(f"{code}\n{said.getvalue()}")


WORDS = {
    "recipe": "rank 1 of 2 does not have the same recipe as rank 0",
    "data": "rank 1 of 2 does not have the same data as rank 0",
    "resume": "rank 1 of 2 does not have the same --resume as rank 0",
    "few labels": "2 ranks for 1 labels; start at most 1",
    "device": "there is no device 'cuda",
    "one device": "several ranks cannot share the device 'cuda:0'",
    "setting": "did you mean 'epochs'",
    "folder": "not all ranks see this folder",
}


def test_mistakes_give_one_line(run_ranks, tmp_path):
    run_ranks(2, __file__, tmp_path)
    for name, words in WORDS.items():
        actual = [(tmp_path / f"{name} {rank}").read_text().split("\n", 1) for rank in (0, 1)]
        assert [code for code, _ in actual] == ["2", "2"], (name, actual)
        said = lines("".join(text for _, text in actual))
        assert len(said) == 1, (name, actual)
        assert words in said[0]
        assert not list(tmp_path.glob("*/model"))


def test_a_port_in_use(start_ranks, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        first, _ = start_ranks(2, "-m", "megalabel", *train(tmp_path / "run", "--timeout", 10), MASTER_PORT=str(port))
        said = first.communicate(timeout=LONGEST)[1]
    assert first.returncode == 2
    assert lines(said) == [
        f"megalabel: the port 127.0.0.1:{port} is in use; choose another with torchrun --master-port, or --standalone"
    ]


if __name__ == "__main__":
    mistakes(Path(sys.argv[1]))
