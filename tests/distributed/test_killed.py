"""A rank is killed at every moment of a run: the other ends with one line, and the resumed run ends as if undisturbed.

Run as a program, ``test_killed.py CASES``, this file trains by two ranks for each case of a JSON list. Every rank is
a process of its own, forked from one that has trained by itself, and so has imported and compiled all there is: that
would take most of the time.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from megalabel.__main__ import main
from megalabel.training.run_log import read_log

LONGEST = 1800.0  # seconds all cases may take; the machine may be busy
SOON = 30.0  # seconds after which no rank may be left; 15 and those that a busy machine takes
ARGUMENTS = [
    "train", "auto", "--data", "synthetic:points=90,labels=14,seed=4", "--seed", "3", "--no-report",
    "--set", "encoder={kind: bag, source: null, options: {dim: 8, words: 128, bigrams: 0, characters: 0}}",
    "--set", "ngrams={words: 256, bigrams: 0, characters: 0}", "--set", "batching.batch_size=24",
    "--set", "batching.min_batches=1", "--set", "batching.negatives={mined: 2, top: 5}",
    "--set", "batching.refresh={start: 0, every: 1}", "--set", "training.epochs=2",
    "--set", "stages=[{name: one}, {name: two}]",
]  # fmt: skip
# Moment: the module, the function, which of its calls, and whether that of rank 0 kills and then takes long.
MOMENTS = {
    "start": ("megalabel.trainer", "check_ranks", 1, False),
    "start, first vectors": ("megalabel.training.phase", "init_heads", 1, True),
    "stage": ("megalabel.trainer", "_Run._phase", 2, False),
    "stage, saved": ("megalabel.trainer", "save_stage", 1, True),
    "refresh": ("megalabel.training.loop", "refresh", 2, False),
    "refresh, clusters": ("megalabel.training.refresh", "cluster_queries", 2, False),
    "step": ("megalabel.training.loop", "Loop._step", 6, False),
    "step, gradients": ("megalabel.training.loop", "Loop._share_gradients", 3, False),
    "evaluation": ("megalabel.training.phase", "Phase._evaluate", 2, False),
    "evaluation, search": ("megalabel.training.phase", "rank", 1, False),
    "checkpoint": ("megalabel.training.checkpoint.store", "write_rows", 2, False),
    "checkpoint, manifest": ("megalabel.training.checkpoint.store", "_seal", 3, True),
    "checkpoint, older ones": ("megalabel.training.checkpoint.store", "_prune", 3, True),
    "refit": ("megalabel.trainer", "train_further", 1, False),
    "refit, step": ("megalabel.training.loop", "Loop._step", 16, False),
    "fit": ("megalabel.heads.overlap", "OverlapSettings.fit", 1, True),
    "fit, last": ("megalabel.heads.linear", "LinearSettings.refit", 1, True),
    "model": ("megalabel.trainer", "_save_model", 1, True),
}
ANEW = {  # with a refit from the start
    "refit anew": ("megalabel.trainer", "_Run.train_stages", 2, False),
    "refit anew, step": ("megalabel.training.loop", "Loop._step", 16, False),
    "refit anew, fit": ("megalabel.heads.linear", "LinearSettings.fit", 2, True),
}
FEW = [("checkpoint", 0), ("fit", 1)]


def results(folder, cases, more):
    """Yield what came of an undisturbed run, and then of each case."""
    undisturbed = {"folder": str(folder / "undisturbed"), "more": more}
    disturbed = [
        {"folder": str(folder / f"{moment}, rank {victim}"), "more": more, "moment": moment, "victim": victim}
        for moment, victim in cases
    ]
    done = subprocess.run(
        [sys.executable, __file__, json.dumps([undisturbed, *disturbed])], stdout=subprocess.PIPE, text=True,
        check=True, timeout=LONGEST, env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"},
    )  # fmt: skip
    for line in done.stdout.splitlines():
        result = json.loads(line)
        yield result, Path(result["folder"]) / "run"


def check(folder, cases, *more):
    every = results(folder, cases, more)
    undisturbed, run = next(every)
    assert undisturbed["codes"] == [0, 0], undisturbed
    expected, steps = arrays(run), list(log(run))
    assert len(expected) > 5
    seen = 0
    for result, run in every:
        moment, victim = result["moment"], result["victim"]
        where = f"{moment}, rank {victim}: {result}"
        assert result["codes"] == ([-signal.SIGKILL, 2] if victim == 0 else [2, -signal.SIGKILL]), where
        assert result["seconds"] < SOON, where
        spoken = [line for line in result["said"][1 - victim].splitlines() if line.startswith("megalabel: ")]
        assert len(spoken) == 1, where
        assert f"megalabel: rank {1 - victim} of 2 lost " in spoken[0] and "--resume" in spoken[0], where
        assert not any(word in said for said in result["said"] for word in ("Traceback", "frame #")), where
        assert result["resumed"]["codes"] == [0, 0], where
        actual = arrays(run)
        assert actual.keys() == expected.keys(), where
        assert [name for name in expected if actual[name] != expected[name]] == [], where
        assert list(log(run)) == steps, where
        assert not (run / "checkpoints").exists(), where
        seen += 1
    assert seen == len(cases)


def arrays(run):
    """Return the bytes of all weights of the model."""
    return {str(path.relative_to(run)): path.read_bytes() for path in (run / "model").rglob("*.safetensors")}


def log(run):
    """Yield what the log says, without times and memory."""
    for row in read_log(run / "metrics.jsonl"):
        yield {name: value for name, value in row.items() if name not in ("seconds", "memory_mb")}


def test_killed_in_few_moments(tmp_path):
    check(tmp_path, FEW)


@pytest.mark.extra
def test_killed_in_every_moment(tmp_path):
    check(tmp_path, [(moment, victim) for moment in MOMENTS for victim in (0, 1) if (moment, victim) not in FEW])


@pytest.mark.extra
def test_killed_in_a_refit_from_the_start(tmp_path):
    check(tmp_path, [(moment, victim) for moment in ANEW for victim in (0, 1)], "--set", "training.refit=true")


# ------------------------------------------------------------------ the program


def kill_at(moment, victim, rank, processes):
    """Kill the victim when it comes to that moment, or when rank 0 does, which alone comes to most of these."""
    module, path, wanted, alone = (MOMENTS | ANEW)[moment]
    *parts, last = path.split(".")
    place = import_module(module)
    for part in parts:
        place = getattr(place, part)
    plain, calls = getattr(place, last), []

    def call(*given, **named):
        calls.append(moment)
        if len(calls) == wanted and (rank == victim or alone):
            with suppress(ProcessLookupError):  # it is gone already
                os.kill(processes[victim], signal.SIGKILL)
            time.sleep(100)  # what the other does takes long
        return plain(*given, **named)

    setattr(place, last, call)


def be_rank(rank, world, port, arguments, moment, victim, folder):
    """Be one rank, and return its exit code."""
    with (folder / f"{rank}.said").open("w") as said:
        os.dup2(said.fileno(), 2)
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({name: str(value) for name, value in (environment | {"MASTER_PORT": port}).items()})
    while len(processes := (folder / "processes").read_text().split()) < world:
        time.sleep(0.01)
    if moment is not None:
        kill_at(moment, victim, rank, [int(process) for process in processes])
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code


def fork(work):
    """Return the number of a new process that does the work and ends with the code that it returns."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        code = work()
    finally:
        sys.stderr.flush()
        os._exit(code)


def train(folder, arguments, moment=None, victim=None, world=2):
    """Return the exit code of each rank, how long the last one outlived the first, and what each said."""
    from conftest import free_port

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "processes").write_text("")
    port = free_port()
    processes = [fork(partial(be_rank, rank, world, port, arguments, moment, victim, folder)) for rank in range(world)]
    (folder / "processes").write_text(" ".join(map(str, processes)))
    codes, ends = {}, []
    while len(codes) < world:
        process, status = os.wait()
        codes[process] = os.waitstatus_to_exitcode(status)
        ends.append(time.monotonic())
    said = [(folder / f"{rank}.said").read_text() for rank in range(world)]
    return {"codes": [codes[process] for process in processes], "seconds": ends[-1] - ends[0], "said": said}


def train_all(cases):
    from megalabel.network import fit

    fit.WORTH_SECONDS = 0.0  # every fitted head is saved
    assert main([*ARGUMENTS, *cases[0]["more"], "--out", str(Path(cases[0]["folder"]) / "alone")]) == 0
    for case in cases:
        folder = Path(case["folder"])
        arguments = [*ARGUMENTS, *case["more"], "--out", str(folder / "run")]
        result = train(folder, arguments, case.get("moment"), case.get("victim"))
        if "moment" in case:
            result["resumed"] = train(folder, [*arguments, "--resume"])
        sys.stdout.write(json.dumps({**case, **result}) + "\n")


if __name__ == "__main__":
    train_all(json.loads(sys.argv[1]))
