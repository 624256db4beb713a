"""The report at the end of a run; if it fails, the run is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from megalabel.cli._options import say

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model import Model

__all__ = ["report_run"]


def report_run(out: Path, model: Model, data: Dataset) -> None:
    """Write the report of a finished run and print its path; if it fails, print one line and keep the run."""
    from megalabel.errors import MegalabelError
    from megalabel.report import write_report

    try:
        say(f"report: {write_report(out, model, data)}")
    except MegalabelError as error:
        say(f"the run is complete, but its report could not be written: {error}")
