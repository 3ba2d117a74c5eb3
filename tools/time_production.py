"""Time the README's commands and the sections of ``docs/production.md`` on the tables of ``make_strangers``.

    python tools/time_production.py [--rows 1500] [--json]

Each command runs in a process of its own, in the current environment; each section of the page runs as it stands, with
its made-up table replaced. CPU seconds are shown beside the seconds of the clock, since a busy machine stretches only
the latter. First runs, which may have to compile, are not counted.
"""

import argparse
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from make_strangers import TABLES

ROOT = Path(__file__).parents[1]
COMMANDS = ("fit", "repair", "score", "audit", "explain", "watch", "plan", "app")
# names of the README on the left, columns of the table on the right
NAMES = {
    "arrests": {
        "score": "decile_score",
        "sex": "sex",
        "age": "age",
        "person": "person_id",
        "outcome": "two_year_recid",
    },
    "claims": {"score": "RiskScore", "sex": "Gender", "age": "Age", "person": "MemberID", "outcome": "FraudFound"},
}
# columns of the table on the left, those of docs/production.md on the right
COLUMNS = {
    "arrests": {"days in jail": "amount", "booked": "opened", "charge": "channel", "priors count": "visits"},
    "claims": {"Claimed": "amount", "First visit": "opened", "Clinic": "channel", "Days in care": "visits"},
}
FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)


def readme_command(name: str, names: dict[str, str], **files: str) -> list[str]:
    """Give the README's command with file and column names replaced, without the program."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(rf"`evenout ({name} [^`]*)`", text)
    if command is None:
        raise SystemExit(f"README.md has no command evenout {name}")
    words = {"risk": names["score"], "sex": names["sex"], "sex,age": f"{names['sex']},{names['age']}"}
    words |= {"person": names["person"], **{key.replace("_", "."): value for key, value in files.items()}}
    return [words.get(word, word) for word in shlex.split(command[1])]


class Time(NamedTuple):
    """Seconds of the clock, and of the processors in this process and its children."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Time":
        """Read both clocks."""
        return cls(time.perf_counter(), sum(os.times()[:4]))

    def since(self, start: "Time") -> "Time":
        """Give the seconds since an earlier reading."""
        return Time(round(self.wall - start.wall, 3), round(self.cpu - start.cpu, 3))


def time_commands(name: str, rows: int) -> dict[str, Time]:
    """Run the README's commands on one table, in the current folder; times by command."""
    table, names = TABLES[name](rows, 0), NAMES[name]
    table.to_csv("mine.csv", index=False)
    Path("new").mkdir()
    for month in (1, 2):
        TABLES[name](rows, month).to_csv(f"new/2026-{month:02d}.csv", index=False)
    files = {f"{file}_csv": "mine.csv" for file in ("people", "vendor", "scores", "new")}
    files["p017"] = str(table[names["person"]].iloc[17])
    run(["fit", "mine.csv", "--sensitive", names["sex"], "--out", "first"])
    return {f"evenout {command}": run(readme_command(command, names, **files)) for command in COMMANDS}


def run(arguments: list[str]) -> Time:
    """Run a command in a process of its own and give its time; of the app, until it prints its address."""
    program = [sys.executable, "-m", "evenout", *arguments]
    start = Time.now()
    if arguments[0] == "app":
        with subprocess.Popen([*program, "--no-browser"], stdout=subprocess.PIPE, text=True) as app:
            assert app.stdout is not None
            first, ready = app.stdout.readline(), Time.now()
            app.terminate()
        if "http" not in first:
            raise SystemExit("evenout app did not start")
        return Time(ready.wall, Time.now().cpu).since(start)  # processors count when a process has ended
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: an alarm of watch
        raise SystemExit(f"evenout {shlex.join(arguments)} ended with status {done.returncode}\n{done.stderr}")
    return Time.now().since(start)


def time_sections(name: str, rows: int) -> dict[str, Time]:
    """Run the sections of the page on one table, in the current folder; times by section."""
    names = NAMES[name]
    table = TABLES[name](rows, 0).rename(columns={**COLUMNS[name], names["sex"]: "sex", names["age"]: "age"})
    table["fraud"] = table[names["outcome"]].isin(["yes", "Y"])
    people = table[["amount", "opened", "channel", "visits", "age"]]
    person = people.astype(object).iloc[0].to_dict()  # of whom the service is asked
    space = {"__name__": "__main__", "np": np, "pd": pd, "people": people, "table": table, "person": person}
    page = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    times = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[2:]:  # what comes first makes up the table
        blocks = [text for _, language, text in FENCE.findall(section) if language == "pycon"]
        if blocks:
            start = Time.now()
            for text in blocks:
                for example in doctest.DocTestParser().get_examples(text):
                    source = re.sub(r"^ask\(.*?\)", "ask(**person)", example.source)
                    exec(compile(source, "production.md", "single"), space)  # the project's own page
            times[section.partition("\n")[0]] = Time.now().since(start)
    return times


def measure(rows: int) -> dict[str, dict[str, Time]]:
    """Time every command and section, by table."""
    found, here = {}, Path.cwd()
    for name in TABLES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                found[name] = time_commands(name, rows)
                with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    warnings.simplefilter("ignore")
                    time_sections(name, 300)
                    found[name] |= time_sections(name, rows)
            finally:
                os.chdir(here)
    return found


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    found = measure(arguments.rows)
    if arguments.json:
        print(
            json.dumps({name: {what: each._asdict() for what, each in times.items()} for name, times in found.items()})
        )
    else:
        frame = pd.DataFrame(
            {
                (name, each): pd.Series({what: getattr(time, each) for what, time in times.items()})
                for name, times in found.items()
                for each in Time._fields
            }
        )
        print(frame.round(1).to_string())


if __name__ == "__main__":
    main()
