"""What a study has still to run: jobs in order, how long each may take, and running them until the time is up."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from _rows import Row, is_of, key_of, rows_there


@dataclass(frozen=True)
class Job:
    """One row on one data set with one seed."""

    data: str  # a folder or a built-in name
    seed: int
    row: Row

    @property
    def name(self) -> str:
        """Return the name of the data set."""
        return Path(self.data).name


def missing(path: Path, jobs: Sequence[Job], more: Mapping[str, Any]) -> list[Job]:
    """Return the jobs whose rows are not there, in their order; the same run is there once."""
    there = rows_there(path)
    keys: set[tuple[Any, ...]] = set()
    left = []
    for job in jobs:
        key = key_of(job.row, job.data, job.seed) | more
        if tuple(key.items()) not in keys and not any(is_of(result, key) for result in there):
            keys.add(tuple(key.items()))
            left.append(job)
    return left


def run_jobs(
    study: str, left: Sequence[Job], options: argparse.Namespace, run: Callable[[Job], str], limit: float | None = None
) -> int:
    """Run the jobs one after the other, or say with ``--dry`` what they are and how long they may take.

    Args:
        study: its name.
        left: jobs to run, in order.
        options: ``dry``, and ``minutes`` after which no further job is started.
        run: runs one job and says what came out.
        limit: processor seconds a job takes at most.
    """
    print(f"{study}: {len(left)} rows to run")
    if options.dry:
        _list(left, limit)
        return 0
    start = time.monotonic()
    for done, job in enumerate(left):
        if options.minutes is not None and time.monotonic() - start > 60 * options.minutes:
            print(f"stopped after {options.minutes:g} minutes, {len(left) - done} rows are left")
            break
        print(f"  {job.name}, seed {job.seed}: {job.row.name}", flush=True)
        print(f"    {run(job)}", flush=True)
    return 0


def _list(left: Sequence[Job], limit: float | None) -> None:
    times = estimates(left, known_rows(), sizes(left), limit)
    for job, seconds in zip(left, times, strict=True):
        about = "no estimate" if seconds is None else f"about {seconds / 60:.1f} min"
        print(f"  {job.name}, seed {job.seed}: {job.row.name}: {about}")
    known = [seconds for seconds in times if seconds is not None]
    print(f"about {sum(known) / 3600:.1f} hours of processor time for {len(known)} of {len(left)} rows")


def known_rows() -> list[dict[str, Any]]:
    """Return the rows of all studies that say what they took."""
    from _results import RESULTS

    rows = [row for name in ("gandalf", "systems", "ablations", "rag") for row in rows_there(RESULTS / f"{name}.json")]
    return [row for row in rows if row.get("cpu_seconds") and row.get("steps")]


def sizes(jobs: Sequence[Job]) -> dict[str, tuple[int, int]]:
    """Return the train points and labels of each data set."""
    import megalabel as ml

    result = {}
    for source in dict.fromkeys(job.data for job in jobs):
        data = ml.load(source)
        result[Path(source).name] = (len(data.train), len(data.labels))
    return result


def estimates(
    jobs: Sequence[Job],
    known: Sequence[Mapping[str, Any]],
    size: Mapping[str, tuple[int, int]],
    limit: float | None = None,
) -> list[float | None]:
    """Return processor seconds of each job, from what steps of the same recipe took, on the same data if possible.

    Else from other recipes on the same data; None where nothing of either is known.
    """
    rates = [(row["recipe"], row["data"], row["cpu_seconds"] / row["steps"]) for row in known]
    result: list[float | None] = []
    for job in jobs:
        for wanted in ((job.row.recipe, job.name), (None, job.name), (job.row.recipe, None)):
            found = [rate for recipe, data, rate in rates if wanted[0] in (None, recipe) and wanted[1] in (None, data)]
            if found:
                break
        seconds = steps_of(job.row, *size[job.name]) * median(found) if found else None
        result.append(seconds if seconds is None or limit is None else min(seconds, limit))
    return result


def steps_of(row: Row, points: int, labels: int) -> int:
    """Return about how many steps a row takes; a tenth of the points is held out, label texts add their rows."""
    from megalabel.recipes.load_recipe import load_recipe

    recipe = load_recipe(row.recipe, row.changes)
    rows = round(0.9 * points)
    if recipe.augment is not None:
        rows = recipe.augment.count_rows(rows, labels)
    steps = sum(
        staged.training.epochs * max(1, rows / staged.batching.batch_size) for _, staged in recipe.stage_recipes()
    )
    return round(steps) + (steps_of(row.after, points, labels) if row.after else 0)
