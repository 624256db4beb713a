"""The server under sustained load from a second process: speed, memory, and correctness of every answer.

Run: python benchmarks/server.py [--run RUN] [--seconds 60] [--clients 64]
Without --run, a model is trained first (--recipe on --data). Each client sends one text per request, waits for the
answer and sends the next; every answer is compared with the prediction of the model itself. Meanwhile another client
repeatedly adds a label, predicts it, removes it and checks that it is gone. The same load then alternates between this
server and an unbatched one. A single client measures the latency of an idle server, then the latency beside another
client that sends a thousand texts per request.
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
from _server_load import K, find_error

LOAD = Path(__file__).with_name("_server_load.py")
LETTERS = "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ"  # used by no text of the data, for the texts of new labels
NEW_LABELS = 10  # added and removed during the load
ROUNDS = 5


def memory(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(run: Path, *options: str) -> Iterator[tuple[int, str]]:
    """Start a server; yield its process id and port."""
    command = [sys.executable, "-m", "megalabel", "serve", str(run), "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if "http://" not in line:
                raise SystemExit(f"the server did not start: {line}")
            yield server.pid, line.partition("http://127.0.0.1:")[2].partition("/")[0]
        finally:
            server.terminate()
        if server.wait() != 0:
            raise SystemExit(f"the server exited with {server.returncode}")


def run_load(server: tuple[int, str], request: dict[str, Any]) -> dict[str, Any]:
    """Run the load in a separate process; return its measurements, and processor time and memory of the server."""
    pid, port = server
    start, mib, times = cpu_seconds(pid), [], []
    command = [sys.executable, str(LOAD), port, json.dumps(request)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        while load.poll() is None:
            mib.append(memory(pid))
            times.append(time.perf_counter())
            time.sleep(0.5)
        assert load.stdout is not None
        if load.returncode != 0:
            raise SystemExit("the load failed")
        measured: dict[str, Any] = json.loads(load.stdout.read())
    third = len(mib) // 3  # memory first touched late is not growth
    slope = float(np.polyfit(times[third:], mib[third:], 1)[0]) if len(mib) > 5 else 0.0
    measured["cpu_seconds"] = cpu_seconds(pid) - start
    measured["memory"] = {"first_mib": mib[0], "last_mib": mib[-1], "peak_mib": max(mib), "mib_a_minute": slope * 60}
    return measured


def merge(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge several rounds: sums of counts, the median of the medians, the maximum of other latencies."""
    first, last = rounds[0]["memory"], rounds[-1]["memory"]
    sums = ("seconds", "requests", "errors", "wrong", "labels_changed", "cpu_seconds")
    total = rounds[0] | {name: sum(each[name] for each in rounds) for name in sums}
    return total | {
        "per_second": total["requests"] / total["seconds"],
        "p50_ms": float(np.median([each["p50_ms"] for each in rounds])),
        **{name: max(each[name] for each in rounds) for name in ("p99_ms", "max_ms")},
        "first_troubles": [error for each in rounds for error in each["first_troubles"]][:5],
        "memory": first | {"last_mib": last["last_mib"]},
        "rounds_per_second": [each["per_second"] for each in rounds],
    }


def neutral_labels(model: Any, texts: list[str], expected: list[Any]) -> list[str]:
    """Return texts of new labels that change no prediction for the texts, so that every answer can be checked.

    Some new labels do change one: the memory head treats a label text that resembles a query as a training text.
    """
    rng, kept = random.Random(0), []
    while len(kept) < NEW_LABELS:
        text = " ".join("".join(rng.choices(LETTERS, k=6)) for _ in range(3))
        (uid,) = model.add_labels([text])
        rows = [[as_json(label) for label in row] for row in model.predict(texts, k=K)]
        pairs = zip(rows, expected, strict=True)
        if all(find_error(row, expected_row, {uid: text}) is None for row, expected_row in pairs):
            kept.append(text)
        model.remove_labels([uid])
    return kept


def as_json(label: Any) -> dict[str, Any]:
    """Return a prediction in the form of the server."""
    return {"id": label.id, "uid": label.uid, "text": label.text, "score": label.score}


def write_reference(run: Path, data: str, out: Path) -> dict[str, Any]:
    """Write texts and the predictions of the model for each text alone; return facts about the model."""
    import torch

    import megalabel as ml

    torch.set_num_threads(1)
    model = ml.Model.load(run, device="cpu")
    texts = list(ml.load(data).test.texts)[:500]
    expected = [[[label.uid, label.text, label.score] for label in model.predict([text], k=K + 5)[0]] for text in texts]
    new_labels = neutral_labels(model, texts, expected)
    out.write_text(json.dumps({"texts": texts, "predictions": expected, "new_labels": new_labels}))
    seconds = []
    for text in texts[:50]:
        start = time.perf_counter()
        model.predict([text], k=K)
        seconds.append(time.perf_counter() - start)
    return {
        "model": model.recipe.name,
        "labels": model.state.alive,
        "heads": len(model.heads),
        "fused": model.fusion is not None,
        "call_of_one_ms": 1e3 * float(np.median(seconds)),
    }


def measure(run: Path, expected: str, seconds: float, clients: int) -> list[dict[str, Any]]:
    """Load a batched and an unbatched server; rounds alternate, so that other processes affect both alike."""
    many = {"expected": expected, "seconds": seconds, "clients": clients, "change": True, "large": False}
    short, single = (
        many | {"seconds": min(seconds, 6)},
        many | {"seconds": min(seconds, 15), "clients": 1, "change": False},
    )
    with serving(run) as batched, serving(run, "--unbatched") as unbatched:
        for server in (batched, unbatched):
            run_load(server, short)  # warm-up
        rows = [row("batched, sustained", run_load(batched, many))]
        rounds = [(run_load(batched, short), run_load(unbatched, short)) for _ in range(ROUNDS)]
        rows.append(row("batched, alternating with the next", merge([first for first, _ in rounds])))
        rows.append(row("unbatched", merge([second for _, second in rounds])))
        rows.append(row("one client", run_load(batched, single)))
        beside = "one client beside one that sends 1,000 texts per request"
        rows.append(row(beside, run_load(batched, single | {"large": True})))
    return rows


def row(name: str, measured: dict[str, Any]) -> dict[str, Any]:
    """Print a row and return it with its name."""
    growth = measured["memory"]["last_mib"] - measured["memory"]["first_mib"]
    print(
        f"{name}: {measured['per_second']:.0f} requests/s, "
        f"p50 {measured['p50_ms']:.1f} ms, p99 {measured['p99_ms']:.1f} ms, "
        f"{measured['errors']} errors, {measured['wrong']} wrong answers, "
        f"{measured['labels_changed']} labels added and removed, "
        f"memory {measured['memory']['last_mib']:.0f} MiB ({growth:+.1f})",
        flush=True,
    )
    for error in measured["first_troubles"]:
        print(f"  {error}")
    return {"name": name, **measured}


def main() -> int:
    """Measure and write results/server.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a trained run; default: train one")
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
        about = write_reference(run, options.data, expected)
        rows = measure(run, str(expected), options.seconds, options.clients)
    ratio = rows[1]["per_second"] / rows[2]["per_second"]
    print(f"batching answers {ratio:.1f}x the requests")
    document = {
        **about, "data": options.data, "texts_a_request": 1, "k": K, "threads": os.environ["OMP_NUM_THREADS"],
        "load_average": os.getloadavg()[0], "ratio": ratio, "rows": rows,
    }  # fmt: skip
    write_result("server", document, "torch", "fastapi", "uvicorn", "httptools", out=options.out)
    return 1 if any(each["errors"] or each["wrong"] for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
