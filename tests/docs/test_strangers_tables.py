"""The README's commands and the code of ``docs/production.md`` on two tables that nobody tuned for."""

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from evenout.cli import main

ROOT = Path(__file__).parents[2]
ROWS = 500


def printed(arguments, codes=(0,)):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(main, list(map(str, arguments)))
    assert result.exit_code in codes, f"{arguments}\n{result.output}\n{result.exception!r}"
    assert not re.search(r"\bnan\b|Traceback", result.output), result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def timing():
    """The script that times the same commands; it has their names of files and columns, too."""
    sys.path.append(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("time_production", ROOT / "tools" / "time_production.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize("name", ["arrests", "claims"])
def test_tasks_of_the_readme(name, timing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme_command, tables, names = timing.readme_command, timing.TABLES, timing.NAMES[name]
    table = tables[name](ROWS, 0)
    table.to_csv("mine.csv", index=False)
    blind = table.drop(columns=[names["sex"]]).head(50)
    blind.to_csv("unknown.csv", index=False)

    # own table to fair scores: doubtful features are named, and so is the way to compare along an age
    fitted = printed(readme_command("fit", names, people_csv="mine.csv"))
    assert f"column '{names['outcome']}' looks like an outcome" in fitted
    assert f"column '{names['score']}' looks like the score of another model" in fitted
    assert f"Column '{names['person']}': left out" in fitted
    assert f"--continuous {names['age']}" in fitted
    assert pd.read_csv("fair/scores.csv")["fair_score"].notna().all()

    # a vendor's score with ties is audited
    assert "asked for: ties" in printed(readme_command("audit", names, scores_csv="mine.csv"))

    # even flags without the group: the group's column is not in the new file
    assert f"column '{names['outcome']}' looks like an outcome" in printed(
        readme_command("repair", names, vendor_csv="mine.csv")
    )
    assert "50 rows" in printed(readme_command("score", names, new_csv="unknown.csv"))

    # why this person, flagged or not
    for person in (table[names["person"]].iloc[0], table[names["person"]].iloc[17]):
        command = readme_command("explain", names, new_csv="mine.csv", p017=str(person))
        assert f"{person}: " in printed(command)

    # a score is watched from a first file on
    Path("new").mkdir()
    for month in (1, 2):
        tables[name](ROWS, month).to_csv(f"new/2026-{month:02d}.csv", index=False)
    assert "Watch over 1 batch" in printed(readme_command("watch", names), codes=(0, 3))

    # whom to look into next
    assert "200 of 500 rows to look into" in printed(readme_command("plan", names, new_csv="mine.csv"))
    assert len(pd.read_csv("plan.csv")) == ROWS


@pytest.mark.parametrize("protected", ["race", "labels"])
def test_one_hot_columns_and_yes_or_no_labels(protected, timing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = timing.TABLES["arrests"](ROWS, 0)
    table.to_csv("mine.csv", index=False)
    races = [column for column in table if column.startswith("race_")]
    if protected == "race":
        command = ["audit", "mine.csv", "--score", "decile_score", "--threshold", "8"]
        for race in races:
            command += ["--sensitive", race]
        assert "African American" in printed(command)
    else:
        command = ["audit", "mine.csv", "--score", "decile_score", "--sensitive", "sex", "--label", "two_year_recid"]
        assert "gap in outliers flagged" in printed(command)


@pytest.mark.parametrize("name", ["arrests", "claims"])
def test_sections_of_the_production_page_run_on_other_tables(name, timing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = timing.time_sections(name, ROWS)
    assert [*times][:3] == ["A pipeline", "Grid search", "Save and load"]
    assert min(each.wall for each in times.values()) > 0
