"""The command line as a process: entry points, interrupts, progress, help."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import evenout
from evenout.cli import main
from evenout.cli.commands import fit

EVENOUT = [sys.executable, "-m", "evenout"]


@pytest.mark.long
def test_stages_are_shown_on_a_terminal_from_a_while_on_and_json_alone_on_stdout(people, tmp_path):
    people.to_csv(tmp_path / "p.csv", index=False)
    arguments = ["fit", "p.csv", "--sensitive", "sex", "--id", "person", "--alpha", "1", "--json"]
    shown, printed = on_a_terminal(tmp_path, arguments, patience=0.0)
    assert b"Reading p.csv" in shown
    for stage in (
        b"Fitting on 360 rows",
        b"Fitting detectors",
        b"Scoring held-out rows, part 5 of 5",
        b"Writing the report",
    ):
        assert stage in shown
    summary, out = json.loads(printed), tmp_path / "evenout-out"
    assert summary["alpha"] == 1.0
    names = sorted(path.name for path in out.iterdir())
    assert names == ["model.skops", "report.html", "scores.csv", "summary.json"]
    page = (out / "report.html").read_text()
    assert all(origin["sha256"] in page for origin in (summary["input"], summary["model"]))
    shown, _ = on_a_terminal(tmp_path, arguments, patience=600.0)
    assert b"Fitting" not in shown


def on_a_terminal(tmp_path, arguments, patience):
    """What is shown on the terminal, and what is printed, of a run that succeeds; progress comes after ``patience``."""
    code = f"import evenout.cli.messages as m; m._PATIENCE = {patience}; from evenout.cli import main; main()"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # raised when the other end is closed
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    printed, _ = process.communicate()
    assert process.returncode == 0
    return shown, printed


def test_wrong_file_ends_the_process_with_status_2(tmp_path):
    done = subprocess.run([*EVENOUT, "fit", "no.csv"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "Error: no.csv: --sensitive is missing; name the column of the protected group\n",
    )


WITH_SIGNALS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, [])
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[1] == "ignored" else signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def started(interrupts, *arguments):
    """A Python process whose parent leaves SIGINT "heard" or "ignored", as a shell does for a job in the background.

    Whatever the parent of these tests ignores or blocks would be inherited otherwise.
    """
    return [sys.executable, "-c", WITH_SIGNALS, interrupts, *arguments]


@pytest.mark.parametrize(
    ("interrupts", "sent", "status"),
    [
        ("heard", [signal.SIGINT], 1),
        ("heard", [signal.SIGTERM], 143),
        ("ignored", [signal.SIGINT, signal.SIGTERM], 143),
    ],
)
def test_an_interrupted_process_leaves_nothing(interrupts, sent, status, tmp_path):
    """An interrupt that the parent ignores stays ignored; a request to terminate is still followed."""
    process = subprocess.Popen(
        started(interrupts, "-m", "evenout", "fit", "credit"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < until:  # its workplace
        time.sleep(0.05)
    for number in sent:
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, b"")
    assert list(tmp_path.iterdir()) == []


CALLED_BACK = """
import ctypes, signal, sys, time
from evenout.cli.messages import plain_messages

@ctypes.CFUNCTYPE(None)
def called_back():
    if len(sys.argv) == 1:
        raise LookupError("of no concern")
    for number in sys.argv[1:]:
        signal.raise_signal(int(number))

with plain_messages():
    try:
        called_back()
        time.sleep(30 if len(sys.argv) > 1 else 0)
    finally:
        print("removed")
print("went on")
"""


@pytest.mark.parametrize(
    ("interrupts", "sent", "status"),
    [
        ("heard", [signal.SIGINT], -signal.SIGINT),
        ("heard", [signal.SIGTERM], 143),
        ("ignored", [signal.SIGINT, signal.SIGTERM], 143),
    ],
)
def test_a_request_to_end_is_not_lost_in_code_that_compiled_code_calls(interrupts, sent, status):
    command = started(interrupts, "-c", CALLED_BACK, *(str(int(number)) for number in sent))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("removed\n", status)


def test_other_errors_in_code_that_compiled_code_calls_are_told():
    done = subprocess.run([sys.executable, "-c", CALLED_BACK], capture_output=True, text=True, check=True)
    assert done.stdout == "removed\nwent on\n"
    assert "LookupError: of no concern" in done.stderr


def test_a_failure_in_the_last_step_leaves_the_old_results(people, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people.to_csv("p.csv", index=False)
    (tmp_path / "evenout-out").mkdir()
    (tmp_path / "evenout-out" / "scores.csv").write_text("old")
    monkeypatch.setattr("evenout.cli.fit.summarise_fit", lambda *_, **__: 1 / 0)
    arguments = ["fit", "p.csv", "--sensitive", "sex", "--id", "person", "--alpha", "1"]
    result = CliRunner().invoke(main, arguments)
    assert isinstance(result.exception, ZeroDivisionError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evenout-out", "p.csv"]
    assert [path.read_text() for path in (tmp_path / "evenout-out").iterdir()] == ["old"]


def test_help_reads_like_a_manual():
    for command, words in (
        ([], ["fit ", "score ", "Examples:", "_EVENOUT_COMPLETE=bash_source", "Exit status"]),
        (["fit"], ["--sensitive COL[,COL...]", "--flag-rate-ratio", "scores.csv", "to undo", "Examples:"]),
        (["score"], ["MODEL FILE", "No group is needed", "Examples:"]),
    ):
        text = CliRunner().invoke(main, [*command, "--help"]).output
        assert all(word in text for word in words), command
        assert max(map(len, text.splitlines())) <= 80
    examples = [line.strip() for line in fit.epilog.splitlines() if line.strip().startswith("evenout fit")]
    assert len(examples) >= 5
    assert CliRunner().invoke(main, ["--version"]).output == f"evenout, version {evenout.__version__}\n"


@pytest.mark.parametrize("command", ["", *main.commands])
def test_help_loads_nothing_but_the_command_line(command):
    """The library is loaded when a command runs; ``tools/measure_door.py`` has the seconds."""
    words = [*filter(None, [command]), "--help"]
    code = f"import sys; from evenout.cli import main; main({words}, standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert loaded & {"numpy", "scipy", "sklearn", "pandas", "numba", "rich", "joblib"} == set()


def test_help_of_fit_begins_with_ten_options_and_has_each_once():
    text = CliRunner().invoke(main, ["fit", "--help"]).output
    options = re.findall(r"^  (?:-h, )?(--[\w-]+)", text, re.MULTILINE)
    first = text[text.index("Most used:") : text.index("Fairness:")]
    assert re.findall(r"^  (--[\w-]+)", first, re.MULTILINE) == options[:10]
    assert sorted(options) == sorted({option.opts[0] for option in fit.params if option.opts[0] != "data"} | {"--help"})


def test_completion_names_commands_and_options():
    completion = ShellComplete(main, {}, "evenout", "_EVENOUT_COMPLETE")
    assert [item.value for item in completion.get_completions([], "sc")] == ["score"]
    assert [item.value for item in completion.get_completions(["fit"], "--flag")] == ["--flag-rate-ratio"]
    assert [item.value for item in completion.get_completions(["fit", "--scaling"], "z")] == ["zscore"]


def test_names_after_a_comma_and_a_space_are_read_as_those_without(people, tmp_path, monkeypatch):
    """Groups as text: a code keeps its leading zero."""
    monkeypatch.chdir(tmp_path)
    people.assign(region=["01", "02"] * (len(people) // 2)).to_csv("p.csv", index=False)
    for out, comma in (("one", ","), ("two", ", ")):
        listed = comma.join(["sex", "region"])
        done = CliRunner().invoke(main, ["fit", "p.csv", "--sensitive", listed, "--alpha", "1", "--out", out])
        assert done.exit_code == 0, done.output
    groups = [json.loads((tmp_path / out / "summary.json").read_text())["groups"] for out in ("one", "two")]
    assert groups[0] == groups[1]
    assert all("region=0" in name for name in groups[1])
