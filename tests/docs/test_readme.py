"""The README shows what happens."""

import contextlib
import dataclasses
import io
import re
from pathlib import Path

import pytest

from evenout import datasets

README = (Path(__file__).parents[2] / "README.md").read_text()


def run_first_example():
    """Output of the README's first example, and the output that the README shows."""
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL).group(1)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    return printed.getvalue().strip(), shown.strip()


@pytest.mark.long
def test_first_example_prints_what_the_readme_says():
    printed, shown = run_first_example()
    assert printed == shown


@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_first_example_prints_these_lines_of_fewer_rows(monkeypatch):
    """All that is shown but the numbers."""
    data = datasets.load_dataset("credit")
    rows = data.X.index[::20]
    few = dataclasses.replace(data, X=data.X.loc[rows], y=data.y.loc[rows], sensitive=data.sensitive.loc[rows])
    monkeypatch.setattr(datasets, "load_dataset", lambda _: few)
    printed, shown = (re.sub(r"[\d.]+", "0", text).splitlines() for text in run_first_example())
    assert [line.split() for line in printed[1:]] == [line.split() for line in shown[1:]]
    assert printed[0][:60] == shown[0][:60]  # what follows depends on whether so few rows support the request


def test_set_up_is_two_commands():
    commands = re.findall(r"```\n(pip install .*?)\n```", README)
    assert commands == ['pip install ".[pages]" && evenout fit credit', 'pip install -e ".[test]" && pytest']
