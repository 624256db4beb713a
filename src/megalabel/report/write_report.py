"""Write the report of a run into its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from megalabel.files import make_folder, writing
from megalabel.model.about import add_metrics
from megalabel.report.charts import all_charts
from megalabel.report.draw_chart import write_png
from megalabel.report.evaluate_run import evaluate_run
from megalabel.report.page import make_page
from megalabel.report.results import Results, model_folder, save_results
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model import Model

__all__ = ["write_page", "write_report"]

SAID = ("P@1", "P@3", "P@5", "nDCG@5", "R@5", "PSP@1", "PSP@5")  # metrics in the line


def write_report(
    folder: str | PathLike[str],
    model: Model,
    data: Dataset,
    *,
    split: str = "test",
    png: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Evaluate a finished run and write ``report.html`` and ``evaluation.json`` into its folder; return the page.

    The metrics also go into the model card, ``README.md``.

    ``megalabel compare`` reads the second file if it is given no data.

    Args:
        folder: run folder that holds the saved model.
        model: that model.
        data: what to measure it on; its labels are those of the model.
        split: which rows.
        png: also write the charts as PNG files, into ``plots/``.
        say: is called with a line of metrics.
    """
    results = evaluate_run(folder, model, data, name=Path(folder).resolve().name, split=split)
    figures = ", ".join(
        f"{name} {results.best['metrics'][name]:.2f}" for name in SAID if name in results.best["metrics"]
    )
    say(f"{split}: {figures} ({counted(results.best['rows'], 'text')})")
    save_results(folder, results)
    report = results.best
    measured = {"split": split, "data": Path(data.name).name, "rows": report["rows"], "metrics": report["metrics"]}
    add_metrics(folder, model_folder(folder), model, measured)
    return write_page(Path(folder) / "report.html", [results], png=png)


def write_page(path: str | PathLike[str], runs: Sequence[Results], *, png: bool = False) -> Path:
    """Write the page of one run or many; with ``png`` also the charts, into ``plots/`` beside it."""
    path = Path(path)
    make_folder(path.parent)
    with writing(path) as out:
        out.write(make_page(runs).encode())
    if png:
        for chart in all_charts(runs):
            write_png(chart, path.parent / "plots")
    return path
