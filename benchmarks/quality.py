"""Our recipes beside other systems, on the same rows with the same metrics (a study that can be resumed).

Run: python benchmarks/quality.py --data DIR [DIR ...] [--systems NAME ...] [--seed 0 1 2] [--minutes M] [--dry]
Writes results/quality/<data>.json, a list of rows, after every one. A row is one system on one data set with one seed,
in a process of its own; one that is there already with the same settings is skipped. Peers are installed by name
into environments of their own on first use; one that cannot be installed is named and left out. They train on train +
val with fixed settings: nothing is chosen on test, by anyone. Times are from texts to model and from texts to labels;
peak memory is that of the process that trains and predicts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _peers.environment import NoEnvironment, environment
from _results import RESULTS, origin
from _rows import Row, RowFailed, digest, digest_of, in_own_process, write_rows

METRICS = ("P@1", "P@3", "P@5", "R@10", "PSP@1", "PSP@3", "PSP@5", "RP@5", "nDCG@5")
DEPTH = 100  # labels asked for, once filtered pairs are out
SCRIPTS = Path(__file__).parent / "_peers"


@dataclass(frozen=True)
class Ours:
    """A recipe of this package, unchanged, or with changes under a name of its own."""

    name: str
    role: str = "ours"
    changes: tuple[str, ...] = ()
    recipe: str | None = None  # None: the name
    asked: bool = False  # runs only if it is asked for by name

    def settings(self) -> dict[str, Any]:
        """Return what the run is asked for."""
        return {"recipe": self.recipe or self.name, "changes": list(self.changes)}

    def digest(self) -> str:
        """Return a hash of what the recipe says."""
        return digest(Row(self.name, self.recipe or self.name, self.changes))


@dataclass(frozen=True)
class Peer:
    """Another system: where it is installed, what it is given, and its settings."""

    name: str
    script: str  # in _peers
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()  # installed without what they ask for
    given: dict[str, Any] = field(default_factory=lambda: {"kind": "words"})
    options: dict[str, Any] = field(default_factory=dict)
    role: str = "peer"
    asked: bool = False

    def settings(self) -> dict[str, Any]:
        """Return what the run is asked for."""
        return {"features": self.given, **self.options}

    def digest(self) -> str:
        """Return a hash of settings and versions."""
        return digest_of([self.script, self.packages, self.alone, self.settings()])


def xr_linear(name: str, given: dict[str, Any], options: dict[str, Any]) -> Peer:
    """Return a form of XR-Linear; libpecos asks for torch but does not need it for linear models."""
    packages = ("numpy==1.26.4", "scipy==1.13.1", "scikit-learn==1.6.1")
    return Peer(name, "xr_linear", packages, ("libpecos==1.2.8",), given, options)


TUNED = {"train": {"negative_sampling_scheme": "tfn+man"}, "predict": {"beam_size": 50}}
# At most five targets: ahead of no limit on P@5, R@10 and PSP, behind on P@1, on rows held out of one set's train.
GANDALF = {"kind": "words", "gandalf": {"delta": 0.1, "most": 5}}
# The guide's, but for the loss (one against all ends in NaN at this rate) and epochs (a tree takes one label a visit).
FASTTEXT = {"loss": "hs", "lr": 0.5, "epoch": 100, "wordNgrams": 2, "dim": 50, "bucket": 200_000}
NO_REFIT = "training.refit=false"
# A step costs seconds here: few texts in each, one refresh, one evaluation, no second training. Chosen by cost alone.
MINILM = (
    "encoder={kind: transformer, source: minilm, query_length: 32, label_length: 32}",
    "batching.batch_size=512",
    "batching.positives.count=2",
    "batching.negatives.mined=1",
    "batching.cap=512",
    "batching.refresh={start: 1, every: 3}",
    "training.epochs=3",
    "training.encoder={kind: adamw, lr: 3.0e-4}",
    "training.chunk_size=2048",
    "training.evaluate_every=3",
    NO_REFIT,
)
SYSTEMS: tuple[Ours | Peer, ...] = (
    Ours("auto", "flagship"),
    Ours("auto with MiniLM, no refit", changes=MINILM, recipe="auto", asked=True),
    Ours("auto, no refit", changes=(NO_REFIT,), recipe="auto", asked=True),
    Ours("unidec-cpu"),
    Ours("depsl-cpu"),
    Ours("dexml-cpu"),
    Ours("astec-cpu"),
    Ours("inceptionxml-cpu"),
    xr_linear("XR-Linear", {"kind": "words"}, {}),
    xr_linear("XR-Linear tuned", {"kind": "words+characters"}, TUNED),
    xr_linear("XR-Linear tuned, words alone", {"kind": "words"}, TUNED),
    xr_linear("XR-Linear, Gandalf rows", GANDALF, {"soft": "weights"}),
    Peer("omikuji Parabel", "parabel", ("omikuji==0.5.2", "numpy", "scipy", "cbor2")),
    Peer("napkinXC PLT", "label_tree", ("napkinxc==0.7.2",)),
    Peer("fastText", "fast_text", ("fasttext-numpy2==0.10.4", "numpy"), (), {"kind": "texts"}, {"train": FASTTEXT}),
)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--systems", nargs="+", choices=names, metavar="NAME", help=f"of: {'; '.join(names)}")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every system")
    parser.add_argument("--minutes", type=float, help="start no further row after so many minutes")
    parser.add_argument("--limit", type=float, default=60, help="stop a row after so many minutes and leave it out")
    parser.add_argument("--again", action="store_true", help="measure known rows again")
    parser.add_argument("--dry", action="store_true", help="list what is missing and stop")
    return parser.parse_args(words)


def main() -> int:
    """Measure what is missing, data set by data set."""
    options = arguments()
    start = time.monotonic()
    for data in options.data:
        missing = list(missing_rows(data, options))
        print(f"{name_of(data)}: {len(missing)} rows to run", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for system, seed in missing:
                print(f"  {system.name}, seed {seed}", flush=True)
                if options.dry or (options.minutes is not None and time.monotonic() - start > 60 * options.minutes):
                    continue
                try:
                    result = run_row(system, data, seed, options, Path(folder))
                except (NoEnvironment, RowFailed) as error:
                    print(f"    left out: {' ... '.join(ends(str(error)))}", flush=True)
                    continue
                figures = ", ".join(f"{name} {result[name]:.2f}" for name in ("P@1", "P@5", "PSP@1", "PSP@5"))
                print(f"    {result['fit_seconds']:.0f} s, {result['peak_mb']:.0f} MB, {figures}", flush=True)
                keep(result_path(data), result)
    return 0


def ends(message: str) -> list[str]:
    """Return the first and the last line of a message, once if they are the same."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[:1] + lines[1:][-1:]


def missing_rows(data: str, options: argparse.Namespace) -> Iterator[tuple[Ours | Peer, int]]:
    """Yield systems and seeds without a row of the same settings; a recipe that does not exist is named."""
    from megalabel.errors import SettingError

    there = {(row["system"], row["digest"], row["seed"]) for row in load(result_path(data))}
    known: list[tuple[Ours | Peer, str]] = []
    for system in SYSTEMS:
        if system.name in options.systems if options.systems else not system.asked:
            try:
                known.append((system, system.digest()))
            except SettingError as error:
                print(f"{system.name} is left out: {error}")
    for seed in options.seed:
        for system, key in known:
            if options.again or (system.name, key, seed) not in there:
                yield system, seed


def run_row(system: Ours | Peer, data: str, seed: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the row of one system; what it was asked is noted before it runs."""
    machine = origin("torch", "scikit-learn")
    asked = {"settings": system.settings(), "digest": system.digest()}
    asked |= {name: machine.pop(name) for name in ("date", "commit")} | {"machine": machine}
    variables = {f"{name}_NUM_THREADS": str(options.threads) for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")}
    if isinstance(system, Ours):
        request = {**system.settings(), "data": data, "seed": seed}
        result = in_own_process([sys.executable, __file__, "row"], request, variables=variables, minutes=options.limit)
    else:
        result = run_peer(system, data, seed, options, folder, variables)
    return {
        "system": system.name,
        "role": system.role,
        "data": name_of(data),
        "seed": seed,
        **result,
        "threads": options.threads,
        "load_average": os.getloadavg()[0],
        **asked,
    }


def run_peer(
    peer: Peer, data: str, seed: int, options: argparse.Namespace, folder: Path, variables: dict[str, str]
) -> dict[str, Any]:
    """Install a peer, make its features if they are not in the folder yet, run it, and measure its ids."""
    import numpy as np

    import megalabel as ml
    from megalabel.metrics import measure

    name = (peer.alone or peer.packages)[0].partition("==")[0]
    python = environment(name, peer.packages, peer.alone)
    given = folder / digest_of(peer.given)
    note = given / "seconds.json"
    if not note.is_file():
        given.mkdir(exist_ok=True)
        request = {"data": data, "features": peer.given, "folder": str(given)}
        made = in_own_process([sys.executable, str(SCRIPTS / "features.py")], request, variables=variables)
        note.write_text(json.dumps(made), encoding="utf-8")
    seconds = json.loads(note.read_text(encoding="utf-8"))
    loaded = ml.load(data)
    pairs = loaded.test.filter
    most = int(np.bincount(pairs[:, 0]).max()) if len(pairs) else 0
    request = {"folder": str(given), "settings": peer.options, "seed": seed, "threads": options.threads}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        result = in_own_process(
            [str(python), str(SCRIPTS / f"{peer.script}.py")],
            {**request, "scratch": scratch, "k": min(DEPTH + most, len(loaded.labels))},
            variables={**variables, "PYTHONPATH": ""},
            minutes=options.limit,
            quiet=True,
        )
        ids = np.load(Path(scratch) / "ids.npy", allow_pickle=False)
    result["fit_seconds"] += seconds["train_seconds"]
    result["fit_cpu_seconds"] += seconds["train_cpu_seconds"]
    result["predict_seconds"] += seconds["test_seconds"]
    metrics = measure(loaded, cut(ids, pairs)).metrics
    return {**{metric: metrics[metric] for metric in METRICS}, **result}


def cut(ids: Any, pairs: Any) -> Any:
    """Take filtered pairs out of the rankings, then keep the first labels; short rankings end in -1."""
    import numpy as np

    from megalabel.metrics import drop_filtered

    kept = drop_filtered(ids, pairs)[:, :DEPTH]
    return np.pad(kept, ((0, 0), (0, DEPTH - kept.shape[1])), constant_values=-1)


def run_ours(request: dict[str, Any], out: Path) -> None:
    """Train and measure a recipe."""
    import megalabel as ml
    from _peers.handover import peak_mb
    from megalabel.metrics import measure

    data = ml.load(request["data"])
    start, used = time.perf_counter(), time.process_time()
    model = ml.train(request["recipe"], data, changes=request["changes"], seed=request["seed"])
    middle, used_by_fit = time.perf_counter(), time.process_time() - used
    ids = model.search(data.test.texts, DEPTH, exclude=data.test.excluded()).ids
    end, peak = time.perf_counter(), peak_mb()
    metrics = measure(data, ids).metrics
    result = {
        **{metric: metrics[metric] for metric in METRICS},
        "fit_seconds": middle - start,
        "fit_cpu_seconds": used_by_fit,
        "predict_seconds": end - middle,
        "peak_mb": peak,
        "parameters": stored_numbers(model),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
    }
    out.write_text(json.dumps(result), encoding="utf-8")


def stored_numbers(model: Any) -> int:
    """Return how many floating-point numbers the saved model holds."""
    from safetensors import safe_open

    total = 0
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        for path in sorted(Path(folder).rglob("*.safetensors")):
            with safe_open(path, framework="pt") as tensors:
                values = (tensors.get_tensor(name) for name in tensors.keys())  # noqa: SIM118
                total += sum(value.numel() for value in values if value.is_floating_point())
    return total


def keep(path: Path, result: dict[str, Any]) -> None:
    """Add a row; older rows of the system go if they have other settings or the same seed."""
    mine = (result["system"], result["data"])
    kept = [
        row
        for row in load(path)
        if (row["system"], row["data"]) != mine or (row["digest"] == result["digest"] and row["seed"] != result["seed"])
    ]
    write_rows(path, [*kept, result])


def load(path: Path) -> list[dict[str, Any]]:
    """Return the rows that are there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def name_of(data: str) -> str:
    """Return what a data set is called: its folder, or its built-in name."""
    return Path(data).name


def result_path(data: str) -> Path:
    """Return the file of a data set's rows."""
    return RESULTS / "quality" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name_of(data))}.json"


if __name__ == "__main__":
    if sys.argv[1:2] == ["row"]:
        run_ours(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main())
