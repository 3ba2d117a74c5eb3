"""``evenout fit --label COL --learn``: the base score learns from the labels there are."""

import json

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


def test_a_folder_does_not_learn(labelled, run, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    labelled.to_parquet(folder / "a.parquet")
    result = run("fit", str(folder), "--sensitive", "sex", "--label", "fraud", "--learn")
    assert "--learn needs the rows in memory; give one file, not a folder" in result.stderr
