"""One self-contained page that shows a fitted ensemble to colleagues and regulators."""

from evenout.report.data import ReportData
from evenout.report.page import collect, render, write_report

__all__ = ["ReportData", "collect", "render", "write_report"]
