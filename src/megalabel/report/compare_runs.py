"""Put runs beside each other, measured on the same rows."""

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
        data: what to measure on; without, what stands in the ``evaluation.json`` of each run is used.
        split: which rows.
        say: is told which run is being measured.

    Raises:
        DataError: a folder without a model, a model with other labels than the data, or runs that were
            evaluated on different data.
        SettingError: the same run twice.
    """
    from megalabel.model import Model

    places = [Path(folder) for folder in folders]
    for number, place in enumerate(places):
        model_folder(place)
        if place.resolve() in [other.resolve() for other in places[:number]]:
            raise SettingError(f"{place} is given twice", remedy="name each run once")
    runs = []
    for place, name in zip(places, _names(places), strict=True):
        if data is None:
            runs.append(read_results(place, name, split=split))
        else:
            say(f"measuring {name} on {data.name}")
            runs.append(evaluate_run(place, Model.load(place), data, name=name, split=split))
    for run in runs[1:]:
        if run.data != runs[0].data:
            what = "other data" if run.data["name"] != runs[0].data["name"] else "other rows of the same name"
            raise DataError(
                f"{runs[0].name} was evaluated on {runs[0].data['name']}, {run.name} on {what}",
                remedy="name one data set for all with --data",
            )
    return runs


def _names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each run: as many last parts of its path as it takes to tell them apart.

    >>> _names([Path("runs/first"), Path("runs/second")])
    ['first', 'second']
    >>> _names([Path("/all/monday/run"), Path("/all/tuesday/run")])
    ['monday/run', 'tuesday/run']
    """
    parts = [folder.resolve().parts for folder in folders]
    depths = range(1, max(map(len, parts)) + 1)
    choices = (["/".join(one[-depth:]) for one in parts] for depth in depths)
    return next(names for names in choices if len(set(names)) == len(names))
