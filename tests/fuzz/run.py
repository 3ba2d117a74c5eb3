"""Run generated cases and judge how they end.

    python run.py cases 0 10000          in this process
    python run.py commands 0 200         each a process of its own, two at a time
    python run.py corpus                 the kept files, with how they must end
    python run.py show 1234              one case: its files, what it prints, the verdict

Every case must end with status 0, or with status 2 and one line that begins with "Error: " (maybe after notes). After
a failure the folder must be as before; after a success the results, and nothing else, must be new and whole.
"""

import argparse
import csv
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
from cases import CORPUS, Case, make
from click.testing import CliRunner

import evenout.report
from evenout.cli import main
from evenout.detectors import pool as named
from evenout.persistence import ModelFileError, load_model

SECONDS = 120  # for one case on a busy machine: a page takes seconds, all else tenths of a second
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where files are made and removed at once


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str
    escaped: str = ""  # an exception, in process


class Overdue(BaseException):
    """A case that takes too long."""


def run_case(case, run):
    """Lay the case out in a new folder, run it there, and return how it ended with all that is wrong about it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        folder, scratch = Path(place, "work"), Path(place, "scratch")
        scratch.mkdir()
        _lay_out(case, folder)
        before = _contents(folder)
        ending = run(case, folder, scratch)
        faults = [*_faults(ending, case), *_changes(ending, case, folder, before)]
        return ending, faults + [f"left {path.name} behind" for path in scratch.iterdir()]


named._LOF, named._KNN, named._TREES = (5,), (2,), (2, 3)  # in this process: fits in milliseconds


def in_process(case, folder, scratch):
    """Call the command line in this process, with the warnings of a fresh one."""
    with _inside(folder, scratch, case.disk), warnings.catch_warnings():
        warnings.resetwarnings()
        for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", hidden)
        result = CliRunner().invoke(main, case.arguments)
    expected = result.exception is None or isinstance(result.exception, SystemExit)
    return Ending(result.exit_code, result.stdout, result.stderr, "" if expected else repr(result.exception))


def as_command(case, folder, scratch):
    """Run the command in a process of its own."""

    def limit():
        if case.disk is not None:
            size = max(case.disk, 100)  # what is imported makes a semaphore, a file of a few bytes
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    done = subprocess.run(
        [sys.executable, "-m", "evenout", *case.arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "80"},
        capture_output=True,
        timeout=4 * SECONDS,
        preexec_fn=limit,
        check=False,
    )
    return Ending(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@contextmanager
def _inside(folder, scratch, disk):
    """Work in a folder, with a place for temporary files, a limit of time and one on the size of files."""

    def stop(*_):
        raise Overdue

    here, hard = Path.cwd(), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    os.chdir(folder)
    tempfile.tempdir = str(scratch)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if disk is None else disk, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        tempfile.tempdir = None
        os.chdir(here)


def _lay_out(case, folder):
    folder.mkdir()
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name, kind in case.places.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match kind:
            case "folder":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "loop":
                path.symlink_to(path.name)
            case "astray":
                path.symlink_to("nowhere")


def _contents(folder):
    """Everything below a folder: bytes of files, targets of links, kinds of the rest."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder" if path.is_dir() else "pipe"
    return found


def _faults(ending, case):
    """List what is wrong with status and words."""
    lines = ending.stderr.splitlines()
    if ending.escaped or "Traceback" in ending.stderr:
        yield f"traceback: {ending.escaped or lines[-1]}"
        return
    words = [line for line in lines if not line.startswith("Note: ")]
    if ending.status == 0:
        if words:
            yield f"printed {words[0]!r} on the error stream"
        if ending.stdout.startswith("{") and not _is_json(ending.stdout):
            yield f"printed no JSON: {ending.stdout!r}"
    elif ending.status != 2:
        yield f"status {ending.status}"
    elif not case.arguments or "Commands:" in ending.stderr:
        pass  # no command: the help
    elif len(words) != 1 or not words[0].startswith("Error: ") or len(words[0]) < 15 or lines[-1] != words[0]:
        yield f"not one clear line: {ending.stderr!r}"
    elif ending.stdout:
        yield f"printed {ending.stdout!r} before it failed"
    elif len(words[0]) > 1200 or not words[0].isprintable():
        yield f"an endless or unprintable line: {words[0]!r}"
    if case.sound and ending.status:
        yield f"a sound case failed: {ending.stderr!r}"


def _changes(ending, case, folder, before):
    """List what is wrong with the files after the run."""
    after = _contents(folder)
    lost = [name for name in before if name not in after]
    if lost:
        yield f"lost {lost}"
    changed = {name for name in after if after[name] != before.get(name)}
    if ending.status:
        if changed:
            yield f"failed, yet wrote {sorted(changed)}"
        return
    inputs = {word for option, word in pairwise(case.arguments) if option != "--out"} & {*case.files}
    yield from (f"replaced its input {name}" for name in inputs if name in changed)
    for name in sorted(changed):
        fault = _fault_of_result(folder / name)
        if fault:
            yield f"{name}: {fault}"


def _is_json(text):
    """Whether the text is JSON, which knows no NaN and no infinity."""
    try:
        json.loads(text, parse_constant=_refuse)
    except ValueError:
        return False
    return True


def _refuse(constant):
    raise ValueError(constant)


def _fault_of_result(path):
    """List what is wrong with a file that a successful run has written."""
    if path.is_dir():
        return ""
    if path.name == "model.skops":
        try:
            load_model(path)
        except ModelFileError as error:
            return str(error)
    elif path.name == "summary.json":
        return "" if _is_json(path.read_text(encoding="utf-8")) else "is no JSON"
    elif path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        return "" if all(map(math.isfinite, table["fair_score"].to_pylist())) else "a score is not finite"
    elif path.name == "report.html":
        return "" if path.stat().st_size else "is empty"
    elif path.suffix in (".csv", ""):
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        if not rows or any(len(row) != len(header) for row in rows):
            return "has no rows, or ragged ones"
        if "fair_score" in header:
            scores = [float(row[header.index("fair_score")]) for row in rows]
            return "" if all(map(math.isfinite, scores)) else "a score is not finite"
    else:
        return "was not expected"
    return ""


def run_cases(numbers, run, workers=1):
    """Run many cases; print each fault as it is found, then how many ended how."""
    endings, wrong = Counter(), 0
    with ThreadPoolExecutor(workers) as pool:
        jobs = (pool.map if workers > 1 else map)(lambda number: (number, *_run_number(number, run)), numbers)
        for number, kind, ending, faults in jobs:
            what = {0: "success", 2: "refused"}.get(ending.status, f"status {ending.status}")
            endings[f"{kind.split()[0]}: {what}"] += 1
            wrong += bool(faults)
            for fault in faults:
                click.echo(f"case {number} ({kind}): {fault}")
    return endings, wrong


def _run_number(number, run):
    case = make(number)
    try:
        if run is as_command or number % 50 == 1:
            return case.kind, *run_case(case, run)
        with without_page():
            return case.kind, *run_case(case, run)
    except (Overdue, subprocess.TimeoutExpired):
        return case.kind, Ending(-1, "", ""), ["no end"]


@contextmanager
def without_page():
    """Draw no page, which takes longer than all the rest; real commands draw it, and one case in fifty."""
    draw = evenout.report.write_report
    evenout.report.write_report = lambda _, path, **__: path.write_text("page")
    try:
        yield
    finally:
        evenout.report.write_report = draw


def run_corpus():
    """Run the kept cases; each must end as it says."""
    endings, wrong = Counter(), 0
    for entry in json.loads((CORPUS / "cases.json").read_text()):
        files = {name: (CORPUS / source).read_bytes() for name, source in entry["files"].items()}
        case = Case(entry["name"], entry["arguments"], files, entry.get("places", {}), entry["status"] == 0)
        with without_page():
            ending, faults = run_case(case, in_process)
        if ending.status != entry["status"] or entry.get("words", "") not in ending.stderr:
            faults.append(f"ended with {ending.status}: {ending.stderr!r}")
        endings["corpus: " + ("success" if not ending.status else "refused")] += 1
        wrong += bool(faults)
        for fault in faults:
            click.echo(f"{entry['name']}: {fault}")
    return endings, wrong


def show(number):
    """Print a case and how it ends; keep its files in a folder."""
    case, folder = make(number), Path(f"case-{number}")
    shutil.rmtree(folder, ignore_errors=True)
    _lay_out(case, folder)
    ending, faults = run_case(case, in_process)
    found = (case.kind, case.arguments, sorted(case.files), case.places, case.disk, ending, faults)
    click.echo("\n".join(map(repr, found)))


def _main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cases", "commands", "corpus", "show"))
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("stop", type=int, nargs="?", default=0)
    given = parser.parse_args()
    if given.what == "show":
        show(given.first)
        return 0
    numbers = range(given.first, given.stop)
    if given.what == "corpus":
        endings, wrong = run_corpus()
    else:
        run, workers = (in_process, 1) if given.what == "cases" else (as_command, 2)
        endings, wrong = run_cases(numbers, run, workers)
    click.echo(json.dumps({"cases": sum(endings.values()), "wrong": wrong, "endings": dict(sorted(endings.items()))}))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(_main())
