"""``evenout fit --label COL --learn``: the base score learns from the labels there are."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def labelled():
    """Outliers differ in one of six features; one row in five has been looked at."""
    rng = np.random.default_rng(0)
    outlier = rng.random(1500) < 0.1
    frame = pd.DataFrame(rng.standard_t(3, size=(1500, 6)), columns=list("abcdef"))
    frame["a"] = rng.normal(size=1500) + 2.5 * outlier
    frame["sex"] = rng.choice(["f", "m"], 1500)
    frame["fraud"] = np.where(rng.random(1500) < 0.2, outlier.astype(float), np.nan)
    return frame


def test_labels_with_gaps_are_learnt_from_and_told(labelled, run):
    labelled.to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--label", "fraud", "--learn", "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    known = labelled["fraud"].notna()
    assert summary["labels"]["known"] == known.sum()
    assert summary["labels"]["outliers"] == labelled["fraud"].sum()
    assert 0.5 < summary["labels"]["weight"] <= 1.0
    assert summary["auc"] is None  # nothing is left to judge by
    assert "fraud" not in summary["columns"]["features"]
    shown = run("fit", "p.csv", "--sensitive", "sex", "--label", "fraud", "--learn", "--out", "again")
    assert f"Labels: {known.sum()} rows" in shown.stdout
    again = run("score", "again/model.skops", "p.csv", "--out", "s.csv")
    assert again.exit_code == 0, again.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--learn"], "p.csv: --learn needs --label, the column with 1, 0, and gaps where nobody knows"),
        (["--label", "fraud"], "column 'fraud' (--label) is empty in row"),
        (["--label", "a", "--learn"], "column 'a' (--label) is"),
    ],
)
def test_labels_that_cannot_be_used_are_one_line(options, message, labelled, run):
    labelled.to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", *options)
    assert result.exit_code != 0
    assert message in result.stderr
    assert result.stderr.strip().count("\n") == 0


@pytest.fixture
def folder(labelled, run):  # noqa: ARG001 (in its folder)
    """The same rows in two Parquet files of ``rows``."""
    Path("rows").mkdir()
    labelled.iloc[:700].to_parquet("rows/a.parquet", index=False)
    labelled.iloc[700:].to_parquet("rows/b.parquet", index=False)
    return "rows"


def test_a_folder_learns_like_the_file(labelled, folder, run):
    labelled.to_csv("p.csv", index=False)
    roles = ("--sensitive", "sex", "--label", "fraud", "--learn", "--alpha", "2")
    results = [run("fit", data, *roles, "--out", out) for data, out in (("p.csv", "file"), (folder, "folder"))]
    for result in results:
        assert result.exit_code == 0, result.stderr
    lines = [next(line for line in result.stdout.splitlines() if "Labels: " in line) for result in results]
    known, outliers = labelled["fraud"].notna().sum(), int(labelled["fraud"].sum())
    assert lines[1].startswith(f"Labels: {known} rows, {outliers} of them outliers; weight 1.00; bias of the base")
    summaries = [json.loads(Path(out, "summary.json").read_text()) for out in ("file", "folder")]
    for name, value in summaries[0]["labels"].items():
        assert summaries[1]["labels"][name] == pytest.approx(value, rel=1e-8)
    written = pd.concat([pd.read_parquet(file) for file in sorted(Path("folder/scores").iterdir())])
    np.testing.assert_allclose(written["fair_score"], pd.read_csv("file/scores.csv")["fair_score"], atol=1e-8)


def test_a_folder_beyond_its_reference_learns_from_all_labels(labelled, folder, run):
    truth = labelled["fraud"].map({0.0: False, 1.0: True})  # truth values with gaps, as a column of Parquet holds them
    labelled.assign(fraud=truth).iloc[:700].to_parquet("rows/a.parquet", index=False)
    labelled.assign(fraud=truth).iloc[700:].to_parquet("rows/b.parquet", index=False)
    roles = ("--sensitive", "sex", "--label", "fraud", "--learn", "--alpha", "2", "--reference-size", "300")
    result = run("fit", folder, *roles, "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["labels"]["known"] == labelled["fraud"].notna().sum()
    assert summary["input"]["reference_rows"] < 400
    assert summary["labels"]["weight"] > 0.5


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (0.0, ["--learn"], "rows: --learn needs --label, the column with 1, 0, and gaps where nobody knows"),
        (2.0, ["--label", "fraud", "--learn"], "rows/b.parquet: --label is '2.0' in row 101; labels must be 0"),
        (None, ["--label", "fraud", "--learn"], "--label has no label at all; give some, or leave --learn out"),
        (0.0, ["--label", "cheat", "--learn"], "rows/a.parquet has no column 'cheat'"),
    ],
)
def test_labels_of_a_folder_that_cannot_be_used_are_one_line(change, options, message, labelled, folder, run):
    labels = labelled["fraud"].where(labelled.index != 800, change) if change is not None else np.nan
    labelled.assign(fraud=labels).iloc[700:].to_parquet("rows/b.parquet", index=False)
    if change is None:
        labelled.assign(fraud=np.nan).iloc[:700].to_parquet("rows/a.parquet", index=False)
    result = run("fit", folder, "--sensitive", "sex", *options, "--out", "out")
    assert result.exit_code != 0
    assert message in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert not Path("out").exists()


def test_labels_that_nothing_is_to_learn_from_are_not_said_to_teach_nothing(labelled, run):
    labelled.assign(fraud=labelled["fraud"].fillna(0.0)).to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--label", "fraud")
    assert result.exit_code == 0, result.stderr
    assert "Labels: " not in result.stdout
    assert json.loads(Path("evenout-out/summary.json").read_text())["labels"] is None
