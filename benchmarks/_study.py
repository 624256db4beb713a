"""Shared by the studies: rows of training runs that can be interrupted and grown.

A study is a list of rows; each is a recipe with changes, trained on one data set with one seed in a process of its
own. A row that is in results/<study>.json already (same resolved recipe, same data, same seed) is skipped, so a
study that was stopped goes on where it was, and a new row costs only itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _budget import phase_times, train, train_within
from _jobs import Job, estimates, known_rows, missing, run_jobs
from _paired import hits_of, packed
from _results import RESULTS, origin
from _rows import Row, row_of

METRICS = (
    "P@1",
    "P@3",
    "P@5",
    "R@10",
    "R@100",
    "nDCG@5",
    "PSP@1",
    "PSP@3",
    "PSP@5",
    "coverage@1",
    "coverage@3",
    "coverage@5",
)
SAMPLES = 5  # test texts whose predictions are kept


def arguments(about: str, *, seeds: Sequence[int] | None = (0,)) -> argparse.Namespace:
    """Read the options every study takes; ``seeds`` is what is run if none are given."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--seed", type=int, nargs="+", default=seeds)
    parser.add_argument("--only", nargs="+", help="rows to run, by name")
    parser.add_argument("--minutes", type=float, help="start no further row after so many minutes")
    parser.add_argument("--dry", action="store_true", help="list what is missing, with the time it may take, and stop")
    return parser.parse_args()


def run_study(study: str, rows: Sequence[Row], options: argparse.Namespace, **more: Any) -> int:
    """Run what is missing of a study, row by row, and write after each.

    ``more`` is part of what a row is known by; with ``cpu_minutes``, as many epochs as fit into that time.
    """
    path = RESULTS / f"{study}.json"
    jobs = [
        Job(data, seed, row)
        for data in options.data
        for seed in options.seed
        for row in rows
        if not options.only or row.name in options.only
    ]
    limit = 60 * more["cpu_minutes"] if "cpu_minutes" in more else None
    return run_jobs(study, missing(path, jobs, more), options, lambda job: run_job(path, job, more), limit)


def run_job(path: Path, job: Job, more: Mapping[str, Any]) -> str:
    """Run one row, add it to a file of rows, and say what came out."""
    result = row_of(path, job.row, job.data, job.seed, __file__, **more)
    return f"{result['seconds']:.0f} s, {_line(result)}"


def _line(result: dict[str, Any]) -> str:
    metrics = result["metrics"]["all"]
    return ", ".join(f"{name} {metrics[name]:.2f}" for name in ("P@1", "P@5", "PSP@1", "PSP@5"))


def _worker(request: dict[str, Any], out: Path) -> None:
    """Train and measure one row."""
    import megalabel as ml
    from megalabel.recipes.load_recipe import load_recipe

    data = ml.load(request["data"])
    recipe = load_recipe(request["recipe"], request["changes"])
    planned = {stage.name: staged.training.epochs for stage, staged in recipe.stage_recipes()}
    budget = request.get("cpu_minutes")
    if budget is None or _short(request, data, 60 * budget):
        run, epochs = train(request, data, request["changes"]), None if budget is None else planned
    else:
        run, epochs = train_within(request, data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    model, log, times = run.model, run.log, phase_times(run.log).values()
    heads = ["all", *(model.heads if len(model.heads) > 1 else ())]
    reports = {head: model.evaluate(data, heads=head) for head in heads}
    steps = [line for line in log if "loss" in line]
    result = {
        **request,
        "data": Path(request["data"]).name,
        "split": "test",
        "metrics": {head: {name: report.metrics[name] for name in METRICS} for head, report in reports.items()},
        "bins": reports["all"].to_dict()["bins"],
        "weights": model.weights,
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        "training_share": sum(time.training for time in times) / run.seconds,  # of them: steps, mining and clusters
        "planned": planned,  # epochs of each stage
        "epochs": epochs,  # those that were run, where a budget may cut them
        "peak_mib": peak,
        "parameters": sum(value.numel() for value in model.network.parameters()),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": os.getloadavg()[0],
        "commit": origin()["commit"],
        "date": time.strftime("%Y-%m-%d"),
        "steps": len(steps),
        "pool": {name: _mean(steps, name) for name in ("pool_size", "positives_per_query", "positives_covered")},
        "curve": [
            {name: line[name] for name in ("phase", "epoch", "step")}
            | {name: line["val"][name] for name in ("P@1", "P@5", "PSP@5", "nDCG@5")}
            for line in log
            if "val" in line
        ],
        "hits": packed(hits_of(model.search(data.test.texts, 5, exclude=data.test.excluded()).ids, data.test.targets)),
        "samples": _samples(model, data),
        "by_text": _by_text(model, data),
    }
    out.write_text(json.dumps(result))


def _short(request: dict[str, Any], data: Any, budget: float) -> bool:
    """Say whether known rows of the same recipe and data show that a run takes less than half its budget."""
    first = request.get("after")
    after = Row("", first["recipe"], tuple(first["changes"])) if first else None
    row = Row("", request["recipe"], tuple(request["changes"]), after)
    name = Path(request["data"]).name
    same = [known for known in known_rows() if (known["recipe"], known["data"]) == (row.recipe, name)]
    (seconds,) = estimates([Job(name, 0, row)], same, {name: (len(data.train), len(data.labels))})
    return seconds is not None and seconds < budget / 2


def _mean(steps: list[dict[str, Any]], name: str) -> float | None:
    values = [step[name] for step in steps if name in step]
    return sum(values) / len(values) if values else None


def _by_text(model: Any, data: Any) -> dict[str, dict[str, float]]:
    """Return the metrics of test rows whose text is that of a label, and of the others."""
    import numpy as np

    texts = set(data.labels.texts)
    own = np.array([text in texts for text in data.test.texts])
    result = {}
    for name, rows in (("label", np.flatnonzero(own)), ("other", np.flatnonzero(~own))):
        if len(rows):
            metrics = model.evaluate(data.test.rows(rows)).metrics
            result[name] = {"rows": len(rows), **{metric: metrics[metric] for metric in METRICS}}
    return result


def _samples(model: Any, data: Any) -> list[dict[str, Any]]:
    """Return the best five labels of a few test texts, spread over the set, without filtered pairs."""
    rows = [len(data.test) * (2 * part + 1) // (2 * SAMPLES) for part in range(SAMPLES)]
    texts, exclude = [data.test.texts[row] for row in rows], data.test.excluded()
    best = model.search(texts, 5, exclude=exclude[rows])
    result = []
    for row, text, labels in zip(rows, texts, best.ids.tolist(), strict=True):
        truth = set(data.test.targets[row].indices.tolist())
        shown = [{"text": model.labels.texts[label], "relevant": label in truth} for label in labels if label >= 0]
        result.append({"text": text, "labels": shown})
    return result


if __name__ == "__main__":
    _worker(json.loads(sys.argv[1]), Path(sys.argv[2]))
