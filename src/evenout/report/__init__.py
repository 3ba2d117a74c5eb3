"""One self-contained page that shows a fitted ensemble to colleagues and regulators."""

from evenout.report.collect import collect
from evenout.report.data import ReportData
from evenout.report.render import render
from evenout.report.write import write_report

__all__ = ["ReportData", "collect", "render", "write_report"]
