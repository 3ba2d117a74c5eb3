"""No file and no argument list ends a command in anything but success, or one clear line and status 2."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import pytest

HERE = Path(__file__).parent


def fuzz(capsys, *runs):
    """Run the program with each of these arguments, all at a time; the endings together, after none was wrong."""
    commands = [[sys.executable, str(HERE / "run.py"), *map(str, run)] for run in runs]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    endings = Counter()
    printed_by_all = [process.communicate()[0] for process in processes]
    for process, printed in zip(processes, printed_by_all, strict=True):
        assert process.returncode == 0, printed
        endings.update(json.loads(printed.splitlines()[-1])["endings"])
    with capsys.disabled():
        click.echo(f"\n{endings.total()} cases: {dict(sorted(endings.items()))}")
    return endings


def successes(endings):
    return sum(count for ending, count in endings.items() if ending.endswith("success"))


def test_the_corpus_is_small_and_ends_as_it_says(capsys):
    assert sum(path.stat().st_size for path in (HERE / "corpus").iterdir()) < 500_000
    cases = json.loads((HERE / "corpus" / "cases.json").read_text())
    used = {source for case in cases for source in case["files"].values()}
    assert used == {path.name for path in (HERE / "corpus").iterdir()} - {"cases.json", "README.md"}
    assert fuzz(capsys, ["corpus"]).total() == len(cases)


@pytest.mark.long
def test_a_few_cases(capsys):
    endings = fuzz(capsys, ["cases", 0, 200])
    assert endings.total() == 200
    assert successes(endings) >= 20


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_ten_thousand_cases(capsys):
    endings = fuzz(capsys, ["cases", 0, 5000], ["cases", 5000, 10_000])
    assert endings.total() == 10_000
    assert successes(endings) >= 1000
    for command in ("fit", "score", "audit"):
        assert min(endings[f"{command}: success"], endings[f"{command}: refused"]) >= 100


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [10, pytest.param(60, marks=pytest.mark.nightly)])
def test_real_commands(count, capsys):  # hundreds: python tests/fuzz/run.py commands 10000 10200
    endings = fuzz(capsys, ["commands", 10_000, 10_000 + count])
    assert endings.total() == count
    assert successes(endings) >= count // 10
