"""Reports of one run or many: tables, charts and a self-contained HTML page."""

from megalabel.report.write_report import write_report

__all__ = ["write_report"]
