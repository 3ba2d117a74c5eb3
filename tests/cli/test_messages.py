"""Progress on a terminal: stages by name, from a while on, and nothing elsewhere."""

import io
import json
import time

import pytest
import rich.console

from evenout.cli import messages
from evenout.core.stages import stage


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """Text that a terminal shows."""
    screen, console = Terminal(), rich.console.Console
    monkeypatch.setattr(
        rich.console, "Console", lambda **_: console(file=screen, force_terminal=True, width=80, legacy_windows=False)
    )
    return screen


def work():
    with messages.progress(quiet=False) as announce:
        advance = announce("Reading a\x1b[2J.csv", total=3)
        advance(1)
        stage("Fitting detectors")
        time.sleep(0.05)
        stage("Writing the report")


def test_stages_are_shown_by_name_after_some_patience(shown, monkeypatch):
    monkeypatch.setattr(messages, "_PATIENCE", 0.0)
    work()
    assert "Writing the report" in shown.getvalue()
    assert "\x1b[2J" not in shown.getvalue()


def test_what_is_done_soon_shows_nothing(shown):
    work()
    assert "Fitting" not in shown.getvalue()


def test_nothing_is_shown_where_nobody_looks(capsys):
    with messages.progress(quiet=True) as announce:
        announce("Reading")(1)
    work()
    assert capsys.readouterr() == ("", "")


def test_a_program_reads_stages_from_a_file(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(messages.STAGES, str(tmp_path / "stages"))
    work()
    said = [json.loads(line) for line in (tmp_path / "stages").read_text().splitlines()]
    assert said == [
        {"stage": "Reading a\N{REPLACEMENT CHARACTER}[2J.csv", "total": 3},
        {"done": 1},
        {"stage": "Fitting detectors", "total": None},
        {"stage": "Writing the report", "total": None},
    ]
    assert capsys.readouterr() == ("", "")
