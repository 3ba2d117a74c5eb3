"""`evenout explain`, and reasons beside scores."""

import json

import pandas as pd
import pytest


def test_reasons_of_a_row_are_printed(fitted, people, run):
    people.to_csv("p.csv", index=False)
    result = run("explain", fitted / "model.skops", "p.csv", "--id", "person", "--person", "p007", "--person", "p001")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("p007: ")
    assert "base score" in lines[0]
    assert lines[1].startswith("  1. ")
    assert "before, " in lines[1]
    assert sum(not line.startswith(" ") for line in lines) == 2
    by_number = run("explain", fitted / "model.skops", "p.csv", "--person", "8").stdout.splitlines()
    assert by_number[1] == lines[1]


def test_json_has_parts_and_words(fitted, people, run):
    people.to_csv("p.csv", index=False)
    result = run("explain", fitted / "model.skops", "p.csv", "--person", "6", "--reasons", "2", "--json")
    (row,) = json.loads(result.stdout)["rows"]
    assert row["id"] == "6"
    assert [reason["feature"] for reason in row["reasons"]]
    assert len(row["reasons"]) == 2
    assert {"base_part", "fair_part", "text", "value", "feature"} == set(row["reasons"][0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--person", "9999"], "p.csv: --person 9999 is unknown; rows are numbered from 1 to 360, or name a column"),
        (["--id", "person", "--person", "x"], "Error: p.csv: --person x is unknown; no row has it in 'person'"),
        (["--id", "sex", "--person", "x"], "--person x stands in 90 rows; --id must tell rows apart"),
        (["--id", "17", "--person", "x"], "p.csv has no column '17' (--id)"),
        (["--id", "17"], "Missing option '--person'"),
    ],
)
def test_wrong_ids_are_one_line(fitted, people, run, arguments, said):
    people.to_csv("p.csv", index=False)
    result = run("explain", fitted / "model.skops", "p.csv", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_scores_of_new_rows_come_with_reasons(fitted, new_people, run):
    new_people.to_csv("n.csv", index=False)
    plain = run("score", fitted / "model.skops", "n.csv", "--out", "s.csv")
    told = run("score", fitted / "model.skops", "n.csv", "--reasons", "2", "--out", "r.csv")
    assert (plain.exit_code, told.exit_code, told.stderr) == (0, 0, "")
    scores, reasons = pd.read_csv("s.csv"), pd.read_csv("r.csv")
    assert list(reasons) == ["id", "fair_score", "flagged", "change", "reason_1", "reason_2"]
    pd.testing.assert_frame_equal(reasons[list(scores)], scores)
    flagged = reasons["flagged"] == 1
    assert flagged.any()
    assert reasons.loc[flagged, "reason_1"].notna().all()
    assert reasons.loc[reasons["change"] == "not flagged", "reason_1"].isna().all()


@pytest.mark.filterwarnings("ignore")
def test_a_fit_writes_reasons_and_a_folder_those_of_its_rows(people, run, tmp_path):
    people.to_csv("p.csv", index=False)
    fit = ("--sensitive", "sex", "--drop", "fraud,age", "--alpha", "2", "--quiet", "--reasons", "2")
    result = run("fit", "p.csv", *fit, "--id", "person", "--out", "memory")
    assert result.exit_code == 0, result.stderr
    scores = pd.read_csv("memory/scores.csv")
    assert list(scores)[-3:] == ["change", "reason_1", "reason_2"]
    (tmp_path / "rows").mkdir()
    people.to_parquet("rows/a.parquet", index=False)
    result = run("fit", "rows", *fit, "--id", "person", "--out", "folder")
    assert result.exit_code == 0, result.stderr
    told = pd.read_parquet("folder/scores/reasons-000000.parquet")
    expected = scores[scores["change"] != "not flagged"].reset_index()
    assert told["row"].tolist() == expected["index"].tolist()
    assert told["reason_1"].tolist() == expected["reason_1"].tolist()
    result = run("score", "folder/model.skops", "rows", "--reasons", "1", "--out", "again")
    assert result.exit_code == 0, result.stderr
    assert pd.read_parquet("again/reasons-000000.parquet")["reason_1"].tolist() == expected["reason_1"].tolist()
