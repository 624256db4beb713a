"""Reports of one run or many: tables, plots and one HTML page that needs no other file."""

from megalabel.report.write_report import write_report

__all__ = ["write_report"]
