"""The command line, on a small table of one's own: what it prints, what it writes, and how it refuses."""

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout.datasets import make_biased_outliers
from league.duels import OUTCOMES
from league.page import BEGIN, END, League, first_lines, render, write_csv

ROOT = Path(__file__).parents[2]
MAIN, DOCS = ROOT / "benchmarks" / "league" / "__main__.py", ROOT / "docs"


@pytest.fixture
def run(monkeypatch, capsys):
    """Output of the command."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["league", *map(str, arguments)])
        runpy.run_path(str(MAIN), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = make_biased_outliers("shift", 500, random_state=0)
    path = tmp_path_factory.mktemp("own") / "mine.csv"
    data.X.assign(group=data.sensitive, bad=data.y).to_csv(path, index=False)
    return path


def test_a_table_of_ones_own_is_played_told_written_and_shown_again(run, table, tmp_path):
    asked = [table, "--sensitive", "group", "--label", "bad", "--methods", "isolation forest", "features dropped"]
    out, page = tmp_path / "found.json", tmp_path / "page.md"
    printed = run(*asked, "--halves", 2, "--jobs", 1, "--out", out, "--json")
    record = json.loads(printed.splitlines()[-1])
    assert len(record["results"]) == 2 * (5 + 1 + 5)  # requests and base of ours, the forest, dropped features and base
    assert record["tables"]["mine"] == {
        "kind": "own", "overlapping": True, "rows": 500, "features": 8, "groups": 2,
    }  # fmt: skip
    assert json.loads(out.read_text())["results"] == record["results"]
    assert sum(record["tally"]["rank_bias"].values()) == len(record["duels"]["rank_bias"]) == 2
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    first = tmp_path / "first.md"
    first.write_text(f"{BEGIN}\n{END}\n")
    again = run("--table", out, "--into", page, "--images", tmp_path / "images", "--first", first, "--csv", tmp_path)
    assert len((tmp_path / "league.csv").read_text().splitlines()) == 3
    assert first_lines(League(json.loads(out.read_text()))) in first.read_text()
    assert "### " not in first.read_text()
    assert render(League(json.loads(out.read_text()))) in again
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| features dropped |" in text
    assert "](images/league.png)" in text
    assert (tmp_path / "images" / "league.png").read_bytes().startswith(b"\x89PNG")


def test_files_of_different_tables_are_shown_as_one(run, tmp_path):
    for name, found in (("a", record({"won": 0.7})), ("b", record({"lost": 0.9}))):
        (tmp_path / name).write_text(json.dumps(found))
    printed = run("--table", tmp_path / "a", tmp_path / "b")
    assert render(League(record({"won": 0.7, "lost": 0.9}))) in printed
    with pytest.raises(SystemExit, match="table 'won' is in more than one file"):
        run("--table", tmp_path / "a", tmp_path / "a")
    (tmp_path / "b").write_text(json.dumps(record({"lost": 0.9}) | {"plan": {"halves": 8, "seed": 1}}))
    with pytest.raises(SystemExit, match="the files were not made by the same methods, seed, halves and rows"):
        run("--table", tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--tables", "adults"], "no table is called 'adults'"),
        (["--tables", "pima", "--methods", "FairOT"], "no method is called 'FairOT'; those are evenout"),
        (["nowhere.csv", "--sensitive", "a", "--label", "b"], "nowhere.csv does not exist"),
        (["nowhere.csv"], "nowhere.csv needs --sensitive and --label"),
        (["--table", "nowhere.json"], "nowhere.json holds no results; make it by --out nowhere.json"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(run, arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    assert str(stopped.value.code).startswith(f"error: {told}")
    assert "\n" not in str(stopped.value.code)


def record(aucs):
    """Two tables, ours and a peer that is as fair; the peer's AUC on each."""
    results = []
    for table, level in aucs.items():
        noise = np.linspace(-0.004, 0.004, 8)
        for method, setting, bias, mean in (
            ("evenout", "base", 0.3, 0.85), ("evenout", "0.8", 0.05, 0.8), ("peer", "base", 0.2, level + 0.02),
            ("peer", "fair", 0.04, level),
        ):  # fmt: skip
            for half, more in enumerate(noise * (1 if method == "peer" else -1)):
                measures = {"bias": bias, "rank_bias": bias, "auc": mean + more, "ap": 0.5, "flag_ratio": 0.5}
                where = {"table": table, "half": half, "method": method, "setting": setting}
                results.append(where | measures | {"list_kept": 0.9, "seconds": 1.0})
    ours = {"source": "", "uses_group": False, "ours": True}
    return {
        "plan": {"halves": 8, "seed": 0},
        "tables": {name: {"kind": "protected", "overlapping": True} for name in aucs},
        "methods": {"evenout": ours, "peer": {"source": "", "uses_group": True, "ours": False}},
        "results": results,
    }


def test_the_page_and_the_files_hold_wins_ties_and_losses_with_their_parts(tmp_path):
    league = League(record({"won": 0.7, "even": 0.801, "lost": 0.9}))
    assert league.tally("rank_bias") == dict(zip(OUTCOMES, (1, 1, 1, 0), strict=True))
    lines = render(league).replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert "| **Use the group of each new row**\\*: peer | 1 | 1 | 1 | 0 |" in first_lines(league)
    loss = next(line for line in lines if line.startswith("| lost | peer\\* | fair | -0.100 ± "))
    assert [cell.strip() for cell in loss.split("|")[5:8]] == ["-0.070", "0.050", "0.020"]
    assert "| peer\\* | 1 | 1 | 1 | 0 | -0.000 | +0.030 | 1/1/1/0 | 80% | 0.020 | 2.0 |" in lines
    compared, tables = (pd.read_csv(path, index_col="table") for path in write_csv(league, tmp_path))
    assert compared["outcome"].to_dict() == {"won": "win", "even": "tie", "lost": "loss"}
    assert compared.loc["won", ["auc_lead", "from_bases", "price_of_evenout", "their_price"]].tolist() == [
        0.1, 0.13, 0.05, 0.02,
    ]  # fmt: skip
    assert tables.loc["won", ["rank_bias_before", "rank_bias_after", "bias_removed"]].tolist() == [0.3, 0.05, 0.83]


def test_a_method_that_was_never_as_fair_has_an_outcome_and_no_figures(tmp_path):
    results = record({"unfair": 0.7})
    for each in results["results"]:
        each["rank_bias"] *= 10 if each["method"] == "peer" else 1
    row = pd.read_csv(write_csv(League(results), tmp_path)[0]).iloc[0]
    assert row["outcome"] == "never as fair"
    assert row[["setting", "auc_lead", "their_price"]].isna().all()


def test_the_published_page_agrees_with_the_published_comparisons():
    """Counts and means of the tables in ``docs/league.md`` and the README follow from ``docs/_static/league.csv``."""
    compared = pd.read_csv(DOCS / "_static" / "league.csv")
    page, readme = ((DOCS / name).read_text(encoding="utf-8") for name in ("league.md", "../README.md"))
    for method, rows in compared.groupby("method"):
        cells = next(line for line in page.splitlines() if line.startswith((f"| {method} |", f"| {method}\\* |")))
        shown = [cell.strip() for cell in cells.split("|")[2:8]]
        assert list(map(int, shown[:4])) == [(rows["outcome"] == outcome).sum() for outcome in OUTCOMES]
        assert list(map(float, shown[4:])) == pytest.approx(rows[["auc_lead", "from_bases"]].mean().tolist(), abs=1e-3)
    found = re.findall(r"^\| \*\*[^|]*\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", readme, re.MULTILINE)
    counts = [(compared["outcome"] == outcome).sum() for outcome in OUTCOMES]
    assert np.sum(np.array(found, dtype=int), axis=0).tolist() == counts
    losses = compared[compared["outcome"] == "loss"]
    assert page.split("### Losses")[1].count(" ± ".replace(" ", "\N{NO-BREAK SPACE}")) == len(losses) == 4


def test_a_champion_who_did_not_play_is_told():
    with pytest.raises(ValueError, match="'somebody' did not play; those who did are evenout, peer"):
        League(record({"won": 0.7}), "somebody")
