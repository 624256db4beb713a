"""Compare runs, measured on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from megalabel.errors import DataError, SettingError
from megalabel.report.evaluate_run import evaluate_run
from megalabel.report.results import Results, model_folder, read_results

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["compare_runs"]


def compare_runs(
    folders: Sequence[str | PathLike[str]],
    data: Dataset | None = None,
    *,
    split: str = "test",
    say: Callable[[str], None] = lambda line: None,
) -> list[Results]:
    """Return the results of each run, in the order given.

    Args:
        folders: run folders or saved models.
        data: what to measure on; if None, the ``evaluation.json`` of each run is read.
        split: which rows.
        say: receives a line for each run that is measured, and for labels that it does not know.

    Raises:
        DataError: a folder has no model, a model has no label of the data, or the runs were
            evaluated on different data.
        SettingError: a run is given twice.
    """
    from megalabel.model import Model

    paths = [Path(folder) for folder in folders]
    for number, path in enumerate(paths):
        model_folder(path)
        if path.resolve() in [other.resolve() for other in paths[:number]]:
            raise SettingError(f"{path} is given twice", remedy="name each run once")
    runs = []
    for path, name in zip(paths, _names(paths), strict=True):
        if data is None:
            runs.append(read_results(path, name, split=split))
        else:
            say(f"measuring {name} on {data.name}")
            runs.append(evaluate_run(path, Model.load(path), data, name=name, split=split, say=say))
    for run in runs[1:]:
        if run.data != runs[0].data:
            what = "other data" if run.data["name"] != runs[0].data["name"] else "other rows of the same name"
            raise DataError(
                f"{runs[0].name} was evaluated on {runs[0].data['name']}, {run.name} on {what}",
                remedy="name one data set for all with --data",
            )
    return runs


def _names(folders: Sequence[Path]) -> list[str]:
    """Return a unique name for each run: the last part of its path, or as many parts as are needed.

    >>> _names([Path("runs/first"), Path("runs/second")])
    ['first', 'second']
    >>> _names([Path("/all/monday/run"), Path("/all/tuesday/run")])
    ['monday/run', 'tuesday/run']
    """
    parts = [folder.resolve().parts for folder in folders]
    depths = range(1, max(map(len, parts)) + 1)
    choices = (["/".join(path[-depth:]) for path in parts] for depth in depths)
    return next(names for names in choices if len(set(names)) == len(names))
