"""The server under sustained load from a second process: speed, memory, and whether every answer is right.

Run: python benchmarks/server.py [--run RUN] [--seconds 60] [--clients 64]
Without --run, a model is trained first (--recipe on --data). Each client sends one text in a request, waits for the
answer and sends the next; every answer is compared with what the model says by itself. Meanwhile another client adds a
label, looks for it, removes it and sees it gone, over and over. The same load then goes in turns to this server and to
one that answers one request with each call of the model; one client alone measures what a request takes when nothing
waits, and once more beside another that sends a thousand texts in each request.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from _results import write_result
from _server_load import K, wrong

LOAD = Path(__file__).with_name("_server_load.py")
LETTERS = "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ"  # that no text has, for the texts of new labels
FRESH = 10  # new labels that come and go
TURNS = 5


def memory(pid: int) -> float:
    """Return the resident MiB of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(run: Path, *options: str) -> Iterator[tuple[int, str]]:
    """Start a server; give its process id and port."""
    command = [sys.executable, "-m", "megalabel", "serve", str(run), "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if "http://" not in line:
                raise SystemExit(f"no server: {line}")
            yield server.pid, line.partition("http://127.0.0.1:")[2].partition("/")[0]
        finally:
            server.terminate()
        if server.wait() != 0:
            raise SystemExit(f"the server ended with {server.returncode}")


def loaded(place: tuple[int, str], request: dict[str, Any]) -> dict[str, Any]:
    """Run the load in a process of its own and return what it saw, and what the server took."""
    server, port = place
    begin, held, times = cpu_seconds(server), [], []
    command = [sys.executable, str(LOAD), port, json.dumps(request)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        while other.poll() is None:
            held.append(memory(server))
            times.append(time.perf_counter())
            time.sleep(0.5)
        assert other.stdout is not None
        if other.returncode != 0:
            raise SystemExit("the load came to no end")
        found = json.loads(other.stdout.read())
    third = len(held) // 3  # what is first touched late is no growth
    slope = float(np.polyfit(times[third:], held[third:], 1)[0]) if len(held) > 5 else 0.0
    found["cpu_seconds"] = cpu_seconds(server) - begin
    found["memory"] = {"first_mib": held[0], "last_mib": held[-1], "peak_mib": max(held), "mib_a_minute": slope * 60}
    return found


def together(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return several rounds as one: sums, the median of the medians, the worst of the others."""
    first, last = rounds[0]["memory"], rounds[-1]["memory"]
    sums = ("seconds", "requests", "errors", "wrong", "labels_changed", "cpu_seconds")
    found = rounds[0] | {name: sum(one[name] for one in rounds) for name in sums}
    return found | {
        "per_second": found["requests"] / found["seconds"],
        "p50_ms": float(np.median([one["p50_ms"] for one in rounds])),
        **{name: max(one[name] for one in rounds) for name in ("p99_ms", "max_ms")},
        "first_troubles": [said for one in rounds for said in one["first_troubles"]][:5],
        "memory": first | {"last_mib": last["last_mib"]},
        "rounds_per_second": [one["per_second"] for one in rounds],
    }


def neutral(model: Any, texts: list[str], found: list[Any]) -> list[str]:
    """Return texts of new labels that change no answer while they are there, so that every answer can be checked.

    Some do: where the text of a new label is by chance like one asked, the memory of training texts counts it as one.
    """
    dice, kept = random.Random(0), []
    while len(kept) < FRESH:
        text = " ".join("".join(dice.choices(LETTERS, k=6)) for _ in range(3))
        (uid,) = model.add_labels([text])
        rows = [[vars_of(one) for one in row] for row in model.predict(texts, k=K)]
        if all(wrong(row, expected, {uid: text}) is None for row, expected in zip(rows, found, strict=True)):
            kept.append(text)
        model.remove_labels([uid])
    return kept


def vars_of(one: Any) -> dict[str, Any]:
    """Return a prediction as the server tells it."""
    return {"id": one.id, "uid": one.uid, "text": one.text, "score": one.score}


def answers(run: Path, data: str, out: Path) -> dict[str, Any]:
    """Write texts and what the model says of each alone; say what the model is."""
    import torch

    import megalabel as ml

    torch.set_num_threads(1)
    model = ml.Model.load(run, device="cpu")
    texts = list(ml.load(data).test.texts)[:500]
    found = [[[one.uid, one.text, one.score] for one in model.predict([text], k=K + 5)[0]] for text in texts]
    out.write_text(json.dumps({"texts": texts, "found": found, "fresh": neutral(model, texts, found)}))
    alone = []
    for text in texts[:50]:
        start = time.perf_counter()
        model.predict([text], k=K)
        alone.append(time.perf_counter() - start)
    return {
        "model": model.network.recipe.name,
        "labels": model.state.alive,
        "heads": len(model.heads),
        "fused": model.fusion is not None,
        "call_of_one_ms": 1e3 * float(np.median(alone)),
    }


def measure(run: Path, expected: str, seconds: float, clients: int) -> list[dict[str, Any]]:
    """Load two servers that differ in one thing; where they are compared, in turns, since other work comes and goes."""
    many = {"expected": expected, "seconds": seconds, "clients": clients, "change": True, "large": False}
    short, one = (
        many | {"seconds": min(seconds, 6)},
        many | {"seconds": min(seconds, 15), "clients": 1, "change": False},
    )
    with serving(run) as batched, serving(run, "--unbatched") as unbatched:
        for place in (batched, unbatched):
            loaded(place, short)  # to warm up
        rows = [row("batched, sustained", loaded(batched, many))]
        turns = [(loaded(batched, short), loaded(unbatched, short)) for _ in range(TURNS)]
        rows.append(row("batched, in turns with the next", together([mine for mine, _ in turns])))
        rows.append(row("one request a call", together([other for _, other in turns])))
        rows.append(row("one client", loaded(batched, one)))
        beside = "one client beside one that sends 1,000 texts at a time"
        rows.append(row(beside, loaded(batched, one | {"large": True})))
    return rows


def row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Print a row and return it with its name."""
    grown = found["memory"]["last_mib"] - found["memory"]["first_mib"]
    print(
        f"{name}: {found['per_second']:.0f} a second, p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms, "
        f"{found['errors']} errors, {found['wrong']} wrong, {found['labels_changed']} labels added and removed, "
        f"memory {found['memory']['last_mib']:.0f} MiB ({grown:+.1f})",
        flush=True,
    )
    for said in found["first_troubles"]:
        print(f"  {said}")
    return {"name": name, **found}


def main() -> int:
    """Measure and write results/server.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a trained run; one is trained where it is left out")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--data", default="pydocs")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        run = options.run
        if run is None:
            import megalabel as ml

            run = Path(folder) / "run"
            ml.train(options.recipe, ml.load(options.data), run, seed=0)
        expected = Path(folder) / "expected.json"
        about = answers(run, options.data, expected)
        rows = measure(run, str(expected), options.seconds, options.clients)
    ratio = rows[1]["per_second"] / rows[2]["per_second"]
    print(f"batched answers {ratio:.1f}x the requests of one request a call")
    document = {
        **about, "data": options.data, "texts_a_request": 1, "k": K, "threads": os.environ["OMP_NUM_THREADS"],
        "load_average": os.getloadavg()[0], "ratio": ratio, "rows": rows,
    }  # fmt: skip
    write_result("server", document, "torch", "fastapi", "uvicorn", "httptools", out=options.out)
    return 1 if any(one["errors"] or one["wrong"] for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
