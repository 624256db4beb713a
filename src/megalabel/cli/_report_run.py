"""The report at the end of a run; it never stands in the way of the run itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from megalabel.cli._options import say

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model import Model

__all__ = ["report_run"]


def report_run(out: Path, model: Model, data: Dataset) -> None:
    """Write the report of a finished run and say where it is; a report that fails is one line, the run is kept."""
    from megalabel.errors import MegalabelError
    from megalabel.report import write_report

    try:
        say(f"report: {write_report(out, model, data)}")
    except MegalabelError as error:
        say(f"the run is whole, but its report could not be written: {error}")
