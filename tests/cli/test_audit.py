import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from evenout.auditing import audit
from evenout.cli import main

FEW = ["--resamples", "60"]


@pytest.fixture
def batch(tmp_path):
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b", "c"], size=300)
    frame = pd.DataFrame(
        {
            "risk": rng.normal(size=300) + (group == "c"),
            "group": group,
            "fraud": rng.integers(0, 2, size=300),
            "income": rng.normal(size=300),
        }
    )
    file = tmp_path / "batch.csv"
    frame.to_csv(file, index=False)
    return file, frame


def run(*arguments):
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


def test_audit_prints_what_python_finds(batch):
    file, frame = batch
    result = run(file, "--score", "risk", "--sensitive", "group", *FEW)
    assert result.exit_code == 0, result.output
    expected = audit(frame["risk"], sensitive_features=frame["group"], resamples=60)
    assert repr(expected).splitlines()[0] in result.output


def test_audit_writes_json_and_csv(batch, tmp_path):
    file, _ = batch
    out = tmp_path / "measures.csv"
    options = [
        "--label",
        "fraud",
        "--given",
        "income",
        "--features",
        "income",
        "--baseline",
        file,
        "--out",
        out,
        "--json",
    ]
    result = run(file, "--score", "risk", "--sensitive", "group", *options, *FEW)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert set(record) == {"audit", "drift"}
    assert {"measure", "value", "low", "high", "p_adjusted"} <= set(pd.read_csv(out).columns)


def test_a_whole_contamination_is_a_count(batch):
    file, _ = batch
    asked = ["--score", "risk", "--sensitive", "group", "--json", *FEW]
    for text, flagged in (("45", 45), ("1", 1), ("0.1", 30), ("5e-2", 15)):
        result = run(file, *asked, "--contamination", text)
        assert result.exit_code == 0, result.output
        assert sum(json.loads(result.stdout)["audit"]["flagged"].values()) == flagged


def test_clusters_are_read_from_a_column(batch):
    file, frame = batch
    frame["person"] = [f"{g}{i // 3:03}" for i, g in enumerate(frame["group"])]
    frame.to_csv(file, index=False)
    asked = ["--score", "risk", "--sensitive", "group", *FEW]
    result = run(file, *asked, "--clusters", "person")
    assert result.exit_code == 0, result.output
    n = frame["person"].nunique()
    assert f"Audit of 300 rows of {n} clusters in 3 groups" in result.stdout
    mixed = run(file, *asked, "--clusters", "fraud")
    assert mixed.exit_code == 2
    assert "fewer than two groups have 30 clusters or more" in mixed.stderr
    frame.loc[4, "person"] = None
    frame.to_csv(file, index=False)
    gaps = run(file, *asked, "--clusters", "person")
    assert "--clusters has missing values in 1 of 300 rows (first: row 5)" in gaps.stderr


def test_small_groups_are_noted_on_the_error_stream(batch):
    file, frame = batch
    frame.loc[:11, "group"] = "d"
    frame.to_csv(file, index=False)
    result = run(file, "--score", "risk", "--sensitive", "group", *FEW)
    assert result.exit_code == 0
    assert "Note: groups of fewer than 30 rows are left out: 'd' (12)" in result.stderr
    assert "too few rows to measure" in result.stdout
    merged = run(file, "--score", "risk", "--sensitive", "group", "--min-size", "12", *FEW)
    assert merged.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--score", "risk", "--sensitive", "group", "--contamination", "0.7"], "a count of rows"),
        (["--score", "risk", "--sensitive", "group", "--contamination", "1.5"], "a count of rows"),
        (["--score", "risk", "--sensitive", "group", "--contamination", "0"], "a count of rows"),
        (
            ["--score", "risk", "--sensitive", "group", "--contamination", "200"],
            "more than half of the 300 rows",
        ),
        (["--score", "risk", "--sensitive", "group", "--min-size", "200"], "fewer than two groups"),
        (["--score", "riks", "--sensitive", "group"], "riks"),
        (["--score", "risk", "--sensitive", "sex"], "sex"),
        (["--score", "group", "--sensitive", "group"], "score"),
        (["--score", "risk", "--sensitive", "group", "--label", "income"], "0"),
    ],
)
def test_wrong_audits_are_one_line_and_status_2(batch, tmp_path, arguments, message):
    out = tmp_path / "measures.csv"
    result = run(batch[0], *arguments, "--out", out, *FEW)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert message in result.stderr
    assert not out.exists()


def test_tables_are_printed_written_and_in_json(batch, tmp_path):
    file, frame = batch
    out = tmp_path / "tables.csv"
    basic = [file, "--score", "risk", "--sensitive", "group", *FEW]
    result = run(*basic, "--as", "hiring", "--as", "strata", "--given", "income", "--out", out)
    assert result.exit_code == 0, result.output
    expected = audit(frame["risk"], sensitive_features=frame[["group"]], resamples=0)
    assert result.output.startswith(repr(expected.table("hiring")))
    assert pd.read_csv(out)["table"].tolist() == ["hiring"] * 3 + ["strata"] * 3
    found = json.loads(run(*basic, "--as", "lending", "--reference", "b", "--flag-means", "good", "--json").output)
    assert found["tables"][0]["favourable"] == "being flagged"
    assert [row["note"] for row in found["tables"][0]["rows"]] == ["", "reference", ""]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--as", "strata"], "a table by strata needs --given"),
        (["--as", "lending", "--reference", "z"], "'z' is no group of any attribute"),
    ],
)
def test_a_table_that_cannot_be_made_is_one_line(batch, options, words):
    result = run(batch[0], "--score", "risk", "--sensitive", "group", *FEW, *options)
    assert result.exit_code == 2
    assert words in result.output
    assert len(result.output.splitlines()) == 1


def test_a_page_is_written_with_the_digest_of_the_file(batch, tmp_path):
    import hashlib

    file, _ = batch
    page = tmp_path / "audit.html"
    basic = [file, "--score", "risk", "--sensitive", "group", *FEW]
    result = run(*basic, "--as", "hiring", "--page", page)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert hashlib.sha256(file.read_bytes()).hexdigest() in text
    assert "29 CFR 1607.4 D" in text
    wrong = run(*basic, "--page", tmp_path / "audit.pdf")
    assert (wrong.exit_code, "must end in .html" in wrong.output) == (2, True)


def test_each_table_is_counted_once_also_where_a_page_is_written(batch, tmp_path, monkeypatch):
    from evenout.auditing import result

    counted, count = [], result.practice_table
    monkeypatch.setattr(result, "practice_table", lambda *given: counted.append(given[1]) or count(*given))
    tables = ["--as", "hiring", "--as", "lending", "--page", tmp_path / "audit.html"]
    done = run(batch[0], "--score", "risk", "--sensitive", "group", *FEW, *tables)
    assert (done.exit_code, counted) == (0, ["hiring", "lending"]), done.output


def test_who_is_flagged_and_how_rows_count_are_read_from_options_and_columns(batch):
    file, frame = batch
    rng = np.random.default_rng(1)
    frame["decile"] = np.ceil(10 * frame["risk"].rank(pct=True)).astype(int)
    frame["high"] = (frame["decile"] >= 8).astype(int)
    frame["weight"] = rng.uniform(0.5, 2.0, 300)
    frame["seen"] = np.where(rng.random(300) < 0.5, frame["fraud"], np.nan)
    frame.to_csv(file, index=False)
    asked = [file, "--score", "decile", "--sensitive", "group", *FEW]
    by_score, by_column = run(*asked, "--threshold", "8"), run(*asked, "--flagged", "high")
    assert "30% flagged: score of 8 or more" in by_score.stdout
    assert "30% flagged by the column given" in by_column.stdout
    assert by_score.stdout.splitlines()[2:] == by_column.stdout.splitlines()[2:]
    both = run(*asked, "--threshold", "8", "--flagged", "high")
    assert "--threshold does not go with --flagged" in both.stderr
    record = run(*asked, "--sample-weight", "weight", "--label", "seen", "--label-propensity", "0.5", "--json")
    found = json.loads(record.stdout)["audit"]
    assert any("rows count by their weights" in note for note in found["notes"])
    assert any("have a label, each counted by one over its chance" in note for note in found["notes"])
    chosen = run(*asked, "--label", "seen")
    assert "Outliers found among the labelled rows alone" in chosen.stdout
    assert "has no column 'chance'" in run(*asked, "--label", "seen", "--label-propensity", "chance").stderr


def test_probabilities_are_bounds_unless_they_are_said_to_be_sufficient(batch):
    file, frame = batch
    frame["p"] = np.where(frame["group"] == "c", 0.8, 0.1)
    frame["q"] = 1 - frame["p"]
    frame.to_csv(file, index=False)
    asked = [file, "--score", "risk", "--sensitive", "p,q", *FEW]
    open_still = run(*asked, "--probable").stdout
    assert "probabilities alone cannot say more" in open_still
    assert "than chance explains" in run(*asked, "--probable", "--sufficient").stdout
    assert "--sufficient goes with --probable" in run(*asked, "--sufficient").stderr
